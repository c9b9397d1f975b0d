//! Check that a network fits the samples.

use super::{NetworkError, NetworkSpec};

/// Hidden units of a LeNet for each channel of the first convolution.
const LENET_HIDDEN: usize = 8;

impl NetworkSpec {
    pub(super) fn check_mlp_input(&self, shape: &[usize]) -> Result<usize, NetworkError> {
        let length = shape.iter().product();
        match self {
            Self::Mlp { widths } if widths.first() != Some(&length) => {
                let wanted = format!("{} values", widths.first().copied().unwrap_or_default());
                Err(self.input(wanted, shape, format!("write `mlp:{length},...`")))
            }
            _ => Ok(length),
        }
    }

    pub(super) fn check_lenet_input(&self, shape: &[usize]) -> Result<[usize; 3], NetworkError> {
        let Self::LeNet { kernel, .. } = self else {
            return Ok([0; 3]);
        };
        // Two rounds of a convolution without padding and a halving must leave a pixel.
        let smallest = 2 * (2 + kernel - 1) + kernel - 1;
        match shape {
            &[channels, height, width] if height >= smallest && width >= smallest => {
                Ok([channels, height, width])
            }
            _ => Err(self.image(format!(", height and width at least {smallest}"), shape)),
        }
    }

    pub(super) fn check_image_input(&self, shape: &[usize]) -> Result<[usize; 3], NetworkError> {
        match shape {
            &[channels, height, width] if channels * height * width > 0 => {
                Ok([channels, height, width])
            }
            _ => Err(self.image(String::new(), shape)),
        }
    }

    /// Planes of `plane` pixels that `outputs` values make.
    pub(super) fn check_image_output(
        &self,
        outputs: usize,
        plane: usize,
    ) -> Result<usize, NetworkError> {
        match outputs.checked_div(plane) {
            Some(planes @ 1..) if outputs.is_multiple_of(plane) => Ok(planes),
            _ => Err(NetworkError::Output {
                network: self.to_string(),
                outputs,
                plane,
            }),
        }
    }

    pub(super) fn lenet_hidden(&self) -> usize {
        match self {
            Self::LeNet { width, .. } => LENET_HIDDEN * width,
            _ => 0,
        }
    }

    pub(super) fn check_cells_input(&self, shape: &[usize]) -> Result<[usize; 3], NetworkError> {
        let Self::Cells { rows, columns, .. } = self else {
            return Ok([0; 3]);
        };
        match shape {
            &[channels, height, width]
                if height.is_multiple_of(*rows)
                    && width.is_multiple_of(*columns)
                    && height * width > 0 =>
            {
                Ok([channels, height / rows, width / columns])
            }
            _ => {
                let wanted = format!(
                    "[channels, height, width] that {rows} x {columns} cells divide evenly"
                );
                Err(self.input(wanted, shape, "use the network without cells".to_owned()))
            }
        }
    }

    fn image(&self, limit: String, shape: &[usize]) -> NetworkError {
        let length: usize = shape.iter().product();
        let wanted = format!("[channels, height, width]{limit}");
        self.input(
            wanted,
            shape,
            format!("use an MLP such as `mlp:{length},200,100`"),
        )
    }

    fn input(&self, wanted: String, shape: &[usize], fix: String) -> NetworkError {
        NetworkError::Input {
            network: self.to_string(),
            wanted,
            shape: shape.to_vec(),
            fix,
        }
    }
}
