//! Beginning with another network's weights.

use std::collections::BTreeMap;
use std::path::Path;

use tch::{Tensor, no_grad};

use super::{NORMALISATION, Network, NetworkError};

impl Network {
    /// Takes over the weights and the normalisation of the safetensors file `path`, which a network
    /// of this trainer has written: one of the same layers, or for a network of cells, of the
    /// layers of one cell.
    ///
    /// Layers count by their order, as their numbers differ between a network and the
    /// same in cells.
    ///
    /// # Errors
    /// If the file cannot be read, or its layers are others.
    pub fn start_from(&mut self, path: &Path) -> Result<(), NetworkError> {
        let file = Tensor::read_safetensors(path).map_err(|source| NetworkError::Load {
            path: path.to_path_buf(),
            network: self.spec.to_string(),
            source,
        })?;
        let own = in_order(self.variables.variables());
        let found = in_order(file);
        let other = |what: String| NetworkError::Start {
            path: path.to_path_buf(),
            network: self.spec.to_string(),
            what,
        };
        if own.len() != found.len() {
            return Err(other(format!(
                "{} weights and not {}",
                found.len(),
                own.len()
            )));
        }
        for (((_, name), own), ((_, from), found)) in own.iter().zip(&found) {
            if own.size() != found.size() || kind(name) != kind(from) {
                let what = format!(
                    "{from} of {:?} and not {name} of {:?}",
                    found.size(),
                    own.size()
                );
                return Err(other(what));
            }
        }
        for (mut own, found) in own.into_values().zip(found.into_values()) {
            no_grad(|| own.f_copy_(&found))?;
        }
        self.weights_changed()
    }
}

/// Weights by the number of their layer, then by name; the normalisation first.
fn in_order(
    weights: impl IntoIterator<Item = (String, Tensor)>,
) -> BTreeMap<(usize, String), Tensor> {
    weights
        .into_iter()
        .map(|(name, tensor)| ((number(&name), name), tensor))
        .collect()
}

fn number(name: &str) -> usize {
    let layer = name.split('.').next().unwrap_or_default();
    let digits = layer.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    if name.starts_with(NORMALISATION) {
        0
    } else {
        digits.parse::<usize>().map_or(0, |number| number + 1)
    }
}

/// A weight's name without its layer's number.
fn kind(name: &str) -> String {
    name.chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect()
}
