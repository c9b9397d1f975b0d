//! A worker's copy of rows whose gradients are sent in place of the rows.

use crate::{Clock, Factors, KeyRange, Keys, Layout, Pulled, Rows, Store, Values};

/// Rows that a worker updates by itself, as replicas do and with their bits (PS-5): of a fully
/// connected layer the factors of a step's gradient are fewer numbers than its weights (Xie et al.,
/// UAI 2016). A pull names the clock that the rows have; servers that cannot send just the gradient
/// of the next one send rows.
#[derive(Debug, Clone)]
pub struct Mirror {
    layout: Layout,
    /// Nothing once rows have come in place of gradients: then the optimiser's state is not known.
    stores: Vec<Store>,
    held: Clock,
}

impl Mirror {
    pub const fn new(layout: Layout) -> Self {
        Self { layout, stores: Vec::new(), held: Clock(0) }
    }

    /// The clock to pull with: that of the rows, or 0 if there are none.
    pub const fn held(&self) -> Clock {
        self.held
    }

    /// Takes over rows that contain all updates up to `clock`, each range by itself.
    ///
    /// # Errors
    /// False if they do not fit the array; then there are none.
    pub fn set(&mut self, clock: Clock, rows: &[Rows]) -> bool {
        self.clear();
        let store = |rows: &Rows| {
            let mut store = Store::new(self.layout.clone(), rows.range);
            let fits = store.fits(rows);
            store.insert(rows);
            fits.then_some(store)
        };
        let Some(stores) = rows.iter().map(store).collect::<Option<Vec<_>>>() else {
            return false;
        };
        if !stores.is_empty() {
            (self.stores, self.held) = (stores, clock);
        }
        true
    }

    pub fn clear(&mut self) {
        self.stores.clear();
        self.held = Clock(0);
    }

    /// Makes the updates in what was pulled of `range`, and puts the rows in their place. Returns
    /// false if that is not possible: pull again, without a clock.
    pub fn take(&mut self, range: KeyRange, pulled: &mut Pulled) -> bool {
        let updates = std::mem::take(&mut pulled.updates);
        let mut stores = std::mem::take(&mut self.stores);
        let held = std::mem::take(&mut self.held);
        if updates.is_empty() {
            return true;
        }
        if pulled.values.get_mut().is_none() {
            pulled.values = pulled.values.to_vec().into();
        }
        let values = pulled.values.get_mut().unwrap_or_default();
        let are_updated = pulled.clock == pulled.newest
            && pulled.clock == held.next()
            && stores.iter_mut().all(|store| self.update(store, &updates, range, values));
        let covered = stores.iter().map(|store| store.range().len()).sum::<u64>();
        if !are_updated || covered != updates.iter().map(|(part, _)| part.len()).sum::<u64>() {
            return false;
        }
        (self.stores, self.held) = (stores, pulled.clock);
        true
    }

    fn update(
        &self,
        store: &mut Store,
        updates: &[(KeyRange, Factors)],
        all: KeyRange,
        values: &mut [f32],
    ) -> bool {
        let range = store.range();
        let mut left = range.len();
        for (part, factors) in updates.iter().filter(|(part, _)| range.covers(*part)) {
            let gradient = Values::Factors(factors.clone()).to_f32();
            if store.update(*part, &Keys::All, &gradient).is_err() {
                return false;
            }
            left = left.saturating_sub(part.len());
        }
        let mut rows = Vec::new();
        store.read(range, &Keys::All, &mut rows);
        let start = range.start.saturating_sub(all.start) as usize * self.layout.width;
        let place = values.get_mut(start..start + rows.len());
        left == 0 && place.map(|place| place.copy_from_slice(&rows)).is_some()
    }
}
