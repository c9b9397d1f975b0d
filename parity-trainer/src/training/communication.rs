//! Communication of a training on a cluster, layer by layer.

use std::fmt;

use crate::network::Network;

/// Numbers that a step's part sends and is sent of a fully connected layer's weights, once as they
/// are and once as factors of their gradient (after Zhang et al., "Poseidon", ATC 2017, section
/// 3.2, whose workers send factors to one another).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerTraffic {
    /// Place among the network's layers.
    pub layer: usize,
    pub outputs: usize,
    pub inputs: usize,
    /// Samples of a part, and parts of a step.
    pub samples: usize,
    pub parts: usize,
    /// Shards that the weights are spread over: each is sent all inputs.
    pub shards: usize,
}

impl LayerTraffic {
    /// The gradient, and the weights: `2 M N`.
    pub const fn dense(&self) -> usize {
        2 * self.outputs * self.inputs
    }

    /// The factors of its own gradient, `K (M + S N)`, and those of the sum of all `P` parts, or
    /// the weights if these are fewer.
    pub fn factors(&self) -> usize {
        let one = self.samples * (self.outputs + self.shards * self.inputs);
        one + (one * self.parts).min(self.outputs * self.inputs)
    }

    /// Factors that all parts send to all others, and are sent by them: `2 K (P - 1) (M + N)`.
    pub const fn between_peers(&self) -> usize {
        2 * self.samples * self.parts.saturating_sub(1) * (self.outputs + self.inputs)
    }

    pub fn goes_as_factors(&self) -> bool {
        self.factors() < self.dense()
    }
}

impl fmt::Display for LayerTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |numbers: usize| (numbers * size_of::<f32>()) as f64 / f64::from(1 << 20);
        let chosen = if self.goes_as_factors() { "factors" } else { "gradients" };
        write!(
            f,
            "layer {}, {} x {}, {} samples in each of {} parts, {} shards: {chosen} (gradients and \
                weights {:.3} MiB a part, factors {:.3}; between peers {:.3})",
            self.layer,
            self.outputs,
            self.inputs,
            self.samples,
            self.parts,
            self.shards,
            mib(self.dense()),
            mib(self.factors()),
            mib(self.between_peers()),
        )
    }
}

/// The traffic of a network's fully connected layers, which are spread over so many `shards`, in
/// steps of `parts` parts of `samples`.
pub(super) fn layers(
    network: &Network,
    shards: impl Iterator<Item = usize>,
    samples: usize,
    parts: usize,
) -> Vec<LayerTraffic> {
    let linears = network.linears().zip(shards).map(|((layer, weights), shards)| {
        let size = weights.size();
        let [outputs, inputs] = [size[0], size[1]].map(|axis| axis as usize);
        LayerTraffic { layer, outputs, inputs, samples, parts, shards }
    });
    linears.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_layers_of_small_parts_go_as_factors() {
        let layer = |outputs, inputs, samples, parts, shards| LayerTraffic {
            layer: 0,
            outputs,
            inputs,
            samples,
            parts,
            shards,
        };
        let large = layer(2048, 2048, 16, 4, 4);
        assert_eq!((large.dense(), large.factors()), (2 << 22, 16 * 5 * 5 * 2048));
        assert!(large.goes_as_factors() && large.dense() > 10 * large.factors());
        assert!(!layer(10, 128, 16, 4, 1).goes_as_factors());
        assert!(!layer(256, 256, 128, 4, 1).goes_as_factors());
        // Weights come back where the sum's factors would be more: half of the numbers are saved.
        let long = layer(1024, 1024, 256, 4, 1);
        assert_eq!(long.factors(), 256 * 2048 + 1024 * 1024);
        assert!(long.goes_as_factors() && !layer(1024, 1024, 512, 4, 1).goes_as_factors());
        // Poseidon's rule, of P - 1 peers and no servers.
        assert_eq!(layer(100, 50, 2, 4, 1).between_peers(), 2 * 2 * 3 * 150);
    }
}
