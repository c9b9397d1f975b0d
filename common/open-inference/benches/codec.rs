//! Time to read and write a request with one 28 x 28 FP32 tensor.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use parapet_open_inference::{Encoding, InferRequest, Tensor, decode_request, encode_request};

fn codec(criterion: &mut Criterion) {
    let values: Vec<f32> = (0..784_u16).map(|index| f32::from(index % 256) / 255.0).collect();
    let Ok(tensor) = Tensor::from_f32("input", [1, 1, 28, 28], &values) else {
        return;
    };
    let request =
        InferRequest { id: Some("42".to_owned()), inputs: vec![tensor], ..InferRequest::default() };
    for encoding in [Encoding::Binary, Encoding::Json] {
        let Ok(encoded) = encode_request(&request, encoding) else {
            return;
        };
        criterion.bench_function(&format!("encode {encoding:?}"), |bencher| {
            bencher.iter(|| encode_request(black_box(&request), encoding));
        });
        criterion.bench_function(&format!("decode {encoding:?}"), |bencher| {
            bencher.iter(|| decode_request(black_box(encoded.body.clone()), encoded.header_length));
        });
    }
    criterion.bench_function("has_non_finite", |bencher| {
        bencher.iter(|| black_box(&request.inputs[0]).has_non_finite());
    });
    criterion.bench_function("f32s", |bencher| {
        bencher.iter(|| black_box(&request.inputs[0]).f32s());
    });
}

criterion_group!(benches, codec);
criterion_main!(benches);
