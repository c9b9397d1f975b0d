//! A strategy for each class of requests, over the same instances of the deployed model. Queries
//! and groups carry their class in their ids, so that whatever is said of them finds its strategy.

use crate::{ClassId, Strategy};

/// One strategy for each class.
#[derive(Debug)]
pub struct ByClass<I, O> {
    default: Box<dyn Strategy<I, O>>,
    others: Vec<Box<dyn Strategy<I, O>>>,
}

impl<I, O> ByClass<I, O> {
    /// `default` is for [`ClassId::DEFAULT`] and for classes that are not there; `others` are those
    /// of class 1, 2, ...
    pub fn new(default: Box<dyn Strategy<I, O>>, others: Vec<Box<dyn Strategy<I, O>>>) -> Self {
        Self { default, others }
    }

    pub(crate) fn of(&self, class: ClassId) -> &dyn Strategy<I, O> {
        let index = usize::from(class.0).checked_sub(1);
        index.and_then(|index| self.others.get(index)).unwrap_or(&self.default).as_ref()
    }

    pub(crate) fn of_mut(&mut self, class: ClassId) -> &mut dyn Strategy<I, O> {
        let index = usize::from(class.0).checked_sub(1);
        index.and_then(|index| self.others.get_mut(index)).unwrap_or(&mut self.default).as_mut()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Box<dyn Strategy<I, O>>> {
        std::iter::once(&self.default).chain(&self.others)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Strategy<I, O>>> {
        std::iter::once(&mut self.default).chain(&mut self.others)
    }
}

/// The same strategy for every class.
impl<I, O> From<Box<dyn Strategy<I, O>>> for ByClass<I, O> {
    fn from(strategy: Box<dyn Strategy<I, O>>) -> Self {
        Self::new(strategy, Vec::new())
    }
}
