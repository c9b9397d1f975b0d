//! Floods of small compressed messages that unpack to 16 MB, at the default limits.

use parapet_open_inference::grpc::message::{
    InferRequestedOutput, InferTensor, InferTensorContents, ModelInferRequest,
};
use prost::Message as _;
use tokio::task::JoinSet;
use tonic::Code;

use super::{GZIP, call, client, packed, request};
use crate::flood::{REPLY, UNPACKED};
use crate::site::Site;
use crate::support::SAMPLE;

/// Calls at the same time.
const CALLS: usize = 40;

/// Has `change` make messages of the sample's, and sends them many at a time; all are refused
/// in few words.
async fn flood(site: &Site, changes: &'static [fn(&mut ModelInferRequest)]) {
    let pack = || {
        let change = |change: &fn(&mut ModelInferRequest)| {
            let mut message = request(&SAMPLE);
            change(&mut message);
            packed(&message.encode_to_vec())
        };
        changes.iter().map(change).collect::<Vec<_>>()
    };
    // The instance lives on this thread.
    let messages = tokio::task::spawn_blocking(pack).await.unwrap();
    let mut callers = Vec::new();
    for _ in 0..4 {
        callers.push(client(site).await);
    }
    let mut calls = JoinSet::new();
    for i in 0..CALLS {
        let caller = callers[i % 4].0.clone();
        let message = messages[i % messages.len()].clone();
        calls.spawn(async move { call(&caller, &[GZIP], message, true).await.unwrap() });
    }
    let mut codes = Vec::new();
    for (code, said) in calls.join_all().await {
        let fields = said.iter();
        let length = fields.map(|(name, value)| name.as_str().len() + value.len());
        let length: usize = length.sum();
        assert!(length < REPLY, "a reply of {length} bytes");
        codes.push(code);
    }
    // The last ones may wait for longer than a message may take.
    let by_content = [Code::InvalidArgument, Code::NotFound];
    let is_refused = |code| by_content.contains(code) || *code == Code::DeadlineExceeded;
    assert!(codes.iter().all(is_refused), "{codes:?}");
    assert!(codes.iter().any(|code| by_content.contains(code)), "{codes:?}");
}

fn long() -> String {
    "\u{200b}".repeat(UNPACKED / 3)
}

fn input(message: &mut ModelInferRequest) -> &mut InferTensor {
    &mut message.inputs[0]
}

pub async fn error_bodies(site: &Site) {
    flood(site, &[|message| input(message).datatype = long()]).await;
}

pub async fn long_names(site: &Site) {
    flood(
        site,
        &[
            |message| input(message).name = long(),
            |message| message.model_name = long(),
            |message| message.model_version = long(),
            |message| message.id = long(),
            |message| {
                let output = InferRequestedOutput { name: long(), ..Default::default() };
                message.outputs.push(output);
            },
            |message| drop(message.parameters.insert(long(), Default::default())),
        ],
    )
    .await;
}

pub async fn wide_lists(site: &Site) {
    flood(site, &[|message| input(message).shape = vec![1; UNPACKED]]).await;
}

/// Elements that take a byte in the message and eight in memory, or eight in both.
pub async fn wide_data(site: &Site) {
    fn typed<'a>(
        message: &'a mut ModelInferRequest,
        datatype: &str,
        elements: usize,
    ) -> &'a mut InferTensorContents {
        message.raw_input_contents.clear();
        let input = input(message);
        input.datatype = datatype.to_owned();
        input.shape = vec![1, elements as i64];
        input.contents.insert(InferTensorContents::default())
    }
    const DOUBLES: usize = UNPACKED / 8;
    flood(
        site,
        &[
            |message| typed(message, "FP64", DOUBLES).fp64_contents = vec![1.0; DOUBLES],
            |message| typed(message, "INT64", UNPACKED).int64_contents = vec![1; UNPACKED],
        ],
    )
    .await;
}
