use prost::Message;

use crate::proto::{Dimension, GraphProto, ModelProto, ValueInfoProto};
use crate::{BatchNorm, BuildError, Conv, GraphBuilder, linear_model};

fn decode(file: &[u8]) -> GraphProto {
    let model = ModelProto::decode(file).unwrap();
    assert_eq!(model.ir_version, Some(8));
    assert_eq!(model.opset_import[0].version, Some(17));
    model.graph.unwrap()
}

fn operators(graph: &GraphProto) -> Vec<&str> {
    graph.node.iter().map(|node| node.op_type.as_deref().unwrap()).collect()
}

fn shape(value: &ValueInfoProto) -> Vec<Dimension> {
    let tensor = value.r#type.clone().unwrap().tensor_type.unwrap();
    let dims = tensor.shape.unwrap().dim.into_iter();
    dims.map(|dim| dim.value.unwrap()).collect()
}

fn batch_of(dims: &[i64]) -> Vec<Dimension> {
    let fixed = dims.iter().map(|&dim| Dimension::DimValue(dim));
    std::iter::once(Dimension::DimParam("batch".to_owned())).chain(fixed).collect()
}

fn conv<'a>(weights: &'a [f32], bias: &'a [f32], padding: usize) -> Conv<'a> {
    Conv { weights, bias, kernel: 3, stride: 1, padding, dilation: 1 }
}

#[test]
fn a_convolutional_network_is_wired_in_order() {
    let (weights, bias) = ([0.5; 2 * 9], [0.0; 2]);
    let builder =
        GraphBuilder::new("image", &[1, 9, 8]).conv(conv(&weights, &bias, 0)).relu().max_pool(2);
    assert_eq!(builder.shape(), [2, 3, 3]);
    let file = builder.flatten().gemm(&[1.0; 18 * 4], &[0.0; 4]).finish("classes").unwrap();

    let graph = decode(&file);
    assert_eq!(operators(&graph), ["Conv", "Relu", "MaxPool", "Flatten", "Gemm"]);
    assert_eq!(shape(&graph.input[0]), batch_of(&[1, 9, 8]));
    assert_eq!(shape(&graph.output[0]), batch_of(&[4]));
    assert_eq!(graph.node[0].input[0], "image");
    assert_eq!(graph.node[4].output, ["classes"]);
    for pair in graph.node.windows(2) {
        assert_eq!(pair[0].output[0], pair[1].input[0]);
    }
    let named: Vec<_> =
        graph.initializer.iter().map(|tensor| tensor.name.clone().unwrap()).collect();
    assert_eq!(named, ["Conv_0_weights", "Conv_0_bias", "Gemm_4_weights", "Gemm_4_bias"]);
    assert_eq!(graph.initializer[0].dims, [2, 1, 3, 3]);
}

#[test]
fn a_residual_block_adds_both_branches() {
    let (weights, bias) = ([0.1; 4 * 9], [0.0; 2]);
    let norm = BatchNorm {
        scale: &[1.0; 2],
        bias: &[0.0; 2],
        mean: &[0.0; 2],
        variance: &[1.0; 2],
        epsilon: 1e-5,
    };
    let file = GraphBuilder::new("input", &[2, 6, 6])
        .residual(
            |graph| Ok(graph.conv(conv(&weights, &bias, 1)).batch_norm(norm)),
            Ok::<_, BuildError>,
        )
        .unwrap()
        .global_average_pool()
        .finish("output")
        .unwrap();

    let graph = decode(&file);
    assert_eq!(operators(&graph), ["Conv", "BatchNormalization", "Add", "GlobalAveragePool"]);
    assert_eq!(graph.node[2].input, ["input", "BatchNormalization_1_output"]);
    assert_eq!(shape(&graph.output[0]), batch_of(&[2, 1, 1]));
}

#[test]
fn a_linear_model_keeps_its_weights_bit_for_bit() {
    let graph = decode(
        &linear_model(&[1, 2], &[1.5, -2.25, f32::MIN_POSITIVE, 4.0], &[0.5, -0.5]).unwrap(),
    );
    assert_eq!(operators(&graph), ["Flatten", "Gemm"]);
    let bytes: Vec<u8> =
        [1.5f32, -2.25, f32::MIN_POSITIVE, 4.0].iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(graph.initializer[0].raw_data.as_deref(), Some(bytes.as_slice()));
    assert_eq!(graph.initializer[0].dims, [2, 2]);
}

#[test]
fn a_stack_passes_through_the_batch_axis() {
    let builder = GraphBuilder::new("input", &[3, 2, 2]).unstack();
    assert_eq!(builder.shape(), [2, 2]);
    let file = builder.flatten().gemm(&[1.0; 8], &[0.0; 2]).reshape(&[3, 2]);
    let graph = decode(&file.finish("output").unwrap());
    assert_eq!(operators(&graph), ["Reshape", "Flatten", "Gemm", "Reshape"]);
    assert_eq!(shape(&graph.output[0]), batch_of(&[3, 2]));
}

#[test]
fn normalisation_is_by_channel_or_feature() {
    for (shape, dims) in [(vec![2, 3, 3], vec![2, 1, 1]), (vec![2], vec![2])] {
        let file =
            GraphBuilder::new("input", &shape).normalise(&[1.0, 2.0], &[0.5, 4.0]).finish("output");
        let graph = decode(&file.unwrap());
        assert_eq!(operators(&graph), ["Sub", "Div"]);
        assert_eq!(graph.initializer[1].dims, dims);
    }
    let wrong = GraphBuilder::new("input", &[3]).normalise(&[1.0], &[1.0]).finish("output");
    assert!(is_refused(wrong, "mean has 1 elements, 3 are needed"));
}

#[test]
fn a_branch_that_cannot_be_made_is_reported() {
    let failed = GraphBuilder::new("input", &[2]).residual(|_| Err("broken"), Ok);
    assert_eq!(failed.unwrap_err(), "broken");
}

#[test]
fn an_empty_graph_hands_its_input_on() {
    let graph = decode(&GraphBuilder::new("input", &[3]).finish("output").unwrap());
    assert_eq!(operators(&graph), ["Identity"]);
    assert_eq!(graph.node[0].input, ["input"]);
}

#[test]
fn the_first_layer_that_does_not_fit_is_named() {
    let builder = GraphBuilder::new("input", &[1, 4, 4]).relu().gemm(&[1.0], &[0.0]).max_pool(9);
    let error = builder.finish("output").unwrap_err();
    assert_eq!(error.layer, "Gemm_1");

    let error = linear_model(&[3], &[1.0; 5], &[0.0; 2]).unwrap_err();
    let wanted = "Gemm_1: weights has 5 elements, 6 are needed for an input of shape [3]";
    assert_eq!(error.to_string(), wanted);

    let window = GraphBuilder::new("input", &[1, 4, 4]).max_pool(5).finish("output");
    assert!(is_refused(window, "window 5 does not fit"));

    let kernel =
        GraphBuilder::new("input", &[1, 2, 2]).conv(conv(&[0.0; 9], &[0.0], 0)).finish("output");
    assert!(is_refused(kernel, "kernel 3, stride 1, padding 0"));

    let main = [0.0; 9];
    let branches = GraphBuilder::new("input", &[1, 6, 6])
        .residual(|graph| Ok(graph.conv(conv(&main, &[0.0], 0))), Ok)
        .and_then(|graph| graph.finish("output"));
    assert!(is_refused(branches, "the branches end in shapes"));
}

fn is_refused(built: Result<Vec<u8>, BuildError>, problem: &str) -> bool {
    built.is_err_and(|error| error.problem.contains(problem))
}
