//! Execution providers of ONNX Runtime: the devices that its sessions run on.

use std::fmt;
use std::str::FromStr;

use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{CUDA, OpenVINO, TensorRT};
use ort::session::builder::SessionBuilder;
use parapet_config::FileError;
use serde_with::DeserializeFromStr;

use super::{OnnxRuntime, one_line};

const WRONG: &str =
    "write cpu, cuda, tensorrt or openvino, all but cpu perhaps with a device, as cuda:1";

/// Execution provider by its name, with the number of its device: `cuda:1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, DeserializeFromStr)]
pub enum Provider {
    #[default]
    Cpu,
    Cuda(u8),
    TensorRt(u8),
    /// On the GPU of this number, or where OpenVINO chooses.
    OpenVino(Option<u8>),
}

impl FromStr for Provider {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, device) = match text.split_once(':') {
            None => (text, None),
            Some((name, device)) => (name, Some(device.parse().map_err(|_| WRONG)?)),
        };
        match (name, device) {
            ("cpu", None) => Ok(Self::Cpu),
            ("cuda", device) => Ok(Self::Cuda(device.unwrap_or(0))),
            ("tensorrt", device) => Ok(Self::TensorRt(device.unwrap_or(0))),
            ("openvino", device) => Ok(Self::OpenVino(device)),
            _ => Err(WRONG),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => write!(f, "cpu"),
            Self::Cuda(device) => write!(f, "cuda:{device}"),
            Self::TensorRt(device) => write!(f, "tensorrt:{device}"),
            Self::OpenVino(None) => write!(f, "openvino"),
            Self::OpenVino(Some(device)) => write!(f, "openvino:{device}"),
        }
    }
}

impl Provider {
    /// A session to be with this provider; its operators use `threads` threads.
    ///
    /// # Errors
    /// If the library lacks the provider, or what that needs: no session falls back to the CPU.
    pub(crate) fn session(
        self,
        runtime: &OnnxRuntime,
        threads: usize,
    ) -> Result<SessionBuilder, FileError> {
        // The default tries all algorithms of convolutions for each new size of a batch.
        let cuda = CUDA::default().with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic);
        let cuda = |device: u8| cuda.with_device_id(device.into()).build();
        let providers = match self {
            Self::Cpu => vec![],
            Self::Cuda(device) => vec![cuda(device)],
            // CUDA runs the operators that TensorRT lacks.
            Self::TensorRt(device) => {
                vec![TensorRT::default().with_device_id(device.into()).build(), cuda(device)]
            }
            Self::OpenVino(None) => vec![OpenVINO::default().build()],
            Self::OpenVino(Some(device)) => {
                vec![OpenVINO::default().with_device_type(format!("GPU.{device}")).build()]
            }
        };
        let providers: Vec<_> =
            providers.into_iter().map(|provider| provider.error_on_failure()).collect();
        let session = runtime.session(threads);
        let session = session.and_then(|session| Ok(session.with_execution_providers(providers)?));
        session.map_err(|error| {
            let reason = one_line(&error);
            let reason = reason.trim_end_matches('.');
            let problem = format!(
                "cannot run models with the provider {self}: {reason}; name a library that can \
                    with --onnxruntime, or give --provider cpu"
            );
            FileError::new(runtime.library(), problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_device_are_read_and_others_refused() {
        for (text, provider) in [
            ("cpu", Provider::Cpu),
            ("cuda:0", Provider::Cuda(0)),
            ("tensorrt:3", Provider::TensorRt(3)),
            ("openvino", Provider::OpenVino(None)),
            ("openvino:1", Provider::OpenVino(Some(1))),
        ] {
            assert_eq!((text.parse(), provider.to_string().as_str()), (Ok(provider), text));
        }
        assert_eq!("cuda".parse(), Ok(Provider::Cuda(0)));
        for text in ["gpu", "CUDA", "cpu:0", "cuda:", "cuda:-1", "cuda:999"] {
            let error = text.parse::<Provider>().unwrap_err();
            assert!(error.ends_with("as cuda:1"), "{text}: {error}");
        }
    }
}
