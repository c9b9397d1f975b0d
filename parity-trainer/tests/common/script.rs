//! Writes a TorchScript module as `torch.jit.script(module).save` would: a zip file of code and
//! pickled parameters.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// A module that flattens its input and multiplies by its one parameter, `weight` of `[inputs,
/// outputs]`.
pub fn write_linear_module(path: &Path, inputs: u8, outputs: u8, weight: &[f32]) {
    let code = "class Linear(Module):\n  __parameters__ = [\"weight\", ]\n  __buffers__ = []\n  \
        weight : Tensor\n  training : bool\n  def forward(self: __torch__.Linear,\n    x: Tensor) \
        -> Tensor:\n    flat = torch.flatten(x, 1, -1)\n    return torch.matmul(flat, \
        self.weight)\n";
    let floats: Vec<u8> = weight.iter().flat_map(|value| value.to_le_bytes()).collect();
    let entries: [(&str, &[u8]); 5] = [
        ("linear/data.pkl", &pickled(inputs, outputs)),
        ("linear/code/__torch__.py", code.as_bytes()),
        ("linear/data/0", &floats),
        ("linear/constants.pkl", b"\x80\x02)."),
        ("linear/version", b"3\n"),
    ];
    let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, contents) in entries {
        zip.start_file(name, stored).unwrap();
        zip.write_all(contents).unwrap();
    }
    zip.finish().unwrap();
}

/// `Linear` with its state: a tensor over storage 0, and `training`.
fn pickled(inputs: u8, outputs: u8) -> Vec<u8> {
    let text =
        |text: &str| [b"X", (text.len() as u32).to_le_bytes().as_slice(), text.as_bytes()].concat();
    let byte = |value: u8| vec![b'K', value];
    let pair = |first: u8, second: u8| [byte(first), byte(second), vec![0x86]].concat();
    [
        b"\x80\x02c__torch__\nLinear\n)\x81}(".to_vec(),
        text("weight"),
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text("storage"),
        b"ctorch\nFloatStorage\n".to_vec(),
        text("0"),
        text("cpu"),
        byte(inputs * outputs),
        b"tQ".to_vec(),
        byte(0),
        pair(inputs, outputs),
        pair(outputs, 1),
        b"\x88ccollections\nOrderedDict\n)RtR".to_vec(),
        text("training"),
        b"\x88ub.".to_vec(),
    ]
    .concat()
}
