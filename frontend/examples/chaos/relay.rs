//! Stands between the frontends and an instance, and spoils its answers when told to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parapet_open_inference::{
    Datatype, HEADER_CONTENT_LENGTH, Tensor, decode_response, encode_response,
};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::plan::Spoil;
use crate::wire::{Message, Reader};

/// Spoilt answers, in percent of all.
pub type Spoiling = Option<(Spoil, u8)>;

/// A relay that runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    spoiling: Mutex<Spoiling>,
    random: Mutex<ChaCha8Rng>,
    spoilt: AtomicU64,
}

impl Relay {
    /// Of the instance at `upstream`, which may come and go.
    pub async fn start(upstream: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            spoiling: Mutex::new(None),
            random: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            spoilt: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        let accepting = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((client, _)) = accepted else { continue };
                        let shared = Arc::clone(&accepting);
                        // However it ends, the frontend sees its connection go.
                        connections.spawn(async move {
                            let _ended = shared.pass_on(client).await;
                        });
                    }
                    Some(_ended) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            shared,
            _tasks: tasks,
        })
    }

    pub fn spoil(&self, spoiling: Spoiling) {
        *self.shared.spoiling.lock() = spoiling;
    }

    /// Answers that were spoilt.
    pub fn spoilt(&self) -> u64 {
        self.shared.spoilt.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn pass_on(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        // An instance that is dead resets what comes to it; so does its relay.
        let Ok(upstream) = TcpStream::connect(self.upstream).await else {
            return client.set_zero_linger();
        };
        upstream.set_nodelay(true)?;
        let (mut client, mut upstream) = (Reader::new(client), Reader::new(upstream));
        while let Some(request) = client.next().await? {
            upstream
                .stream
                .write_all(&[request.head().as_bytes(), &request.body[..]].concat())
                .await?;
            let Ok(Some(answer)) = upstream.next().await else {
                return client.stream.set_zero_linger();
            };
            let spoil = if request.line.contains("/infer ") {
                self.drawn()
            } else {
                None
            };
            match spoil {
                None => send(&mut client.stream, &answer).await?,
                Some(spoil) => {
                    self.spoilt.fetch_add(1, Ordering::Relaxed);
                    self.spoilt_answer(spoil, &mut client.stream, answer)
                        .await?;
                }
            }
        }
        Ok(())
    }

    fn drawn(&self) -> Option<Spoil> {
        let (spoil, percent) = (*self.spoiling.lock())?;
        (self.random.lock().random_range(0..100) < percent).then_some(spoil)
    }

    fn below(&self, bound: usize) -> usize {
        self.random.lock().random_range(0..bound.max(1))
    }

    async fn spoilt_answer(
        &self,
        spoil: Spoil,
        client: &mut TcpStream,
        answer: Message,
    ) -> io::Result<()> {
        match spoil {
            Spoil::NaN => send(client, &self.with_nan(answer)).await,
            Spoil::WrongShape => send(client, &self.misshapen(answer)).await,
            Spoil::SlowBody => {
                let pause = Duration::from_millis(20 + self.below(180) as u64);
                client.write_all(answer.head().as_bytes()).await?;
                for piece in answer.body.chunks(answer.body.len().div_ceil(4).max(1)) {
                    tokio::time::sleep(pause).await;
                    client.write_all(piece).await?;
                }
                Ok(())
            }
            Spoil::Reset => {
                let whole = [answer.head().as_bytes(), &answer.body[..]].concat();
                let sent = whole.get(..self.below(whole.len())).unwrap_or_default();
                client.write_all(sent).await?;
                client.set_zero_linger()?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Spoil::Garbage => {
                client
                    .write_all(b"\x00\xff\x17 never heard of HTTP\r\n\r\n")
                    .await?;
                Err(io::ErrorKind::InvalidData.into())
            }
            Spoil::Error => {
                let body = Bytes::from_static(br#"{"error":"out of memory on device 0"}"#);
                let line = "HTTP/1.1 500 Internal Server Error".to_owned();
                send(
                    client,
                    &Message {
                        line,
                        headers: Vec::new(),
                        body,
                    },
                )
                .await
            }
            Spoil::Endless => {
                client
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n")
                    .await?;
                loop {
                    client.write_all(&[b'1'; 4096]).await?;
                }
            }
        }
    }

    fn with_nan(&self, answer: Message) -> Message {
        let number = if self.below(2) == 0 {
            f32::NAN
        } else {
            f32::INFINITY
        };
        self.changed(answer, |output| {
            let mut data = output.data.to_vec();
            let place = self.below(data.len() / 4);
            if let Some(bytes) = data.get_mut(4 * place..4 * place + 4) {
                bytes.copy_from_slice(&number.to_le_bytes());
            }
            Tensor {
                data: data.into(),
                ..output
            }
        })
    }

    /// Sound in itself, and not what the model gives.
    fn misshapen(&self, answer: Message) -> Message {
        let kind = self.below(4);
        self.changed(answer, |output| {
            let rows = output.shape.first().copied().unwrap_or_default();
            match kind {
                0 => Tensor {
                    name: "something".to_owned(),
                    ..output
                },
                1 => {
                    let more = [&output.data[..], &output.data[..]].concat();
                    let shape =
                        [&[2 * rows][..], output.shape.get(1..).unwrap_or_default()].concat();
                    Tensor {
                        shape,
                        data: more.into(),
                        ..output
                    }
                }
                2 => widened(output),
                _ => Tensor {
                    datatype: Datatype::Int32,
                    ..output
                },
            }
        })
    }

    fn changed(&self, mut answer: Message, change: impl FnOnce(Tensor) -> Tensor) -> Message {
        let length = answer
            .header(HEADER_CONTENT_LENGTH)
            .and_then(|length| length.parse().ok());
        let Ok(mut response) = decode_response(answer.body.clone(), length) else {
            return answer;
        };
        if let Some(output) = response.outputs.pop() {
            response.outputs.push(change(output));
        }
        // JSON has no form for what is no number.
        let Ok(encoded) = encode_response(&response, |_| true) else {
            return answer;
        };
        answer
            .headers
            .retain(|(name, _)| name != HEADER_CONTENT_LENGTH);
        if let Some(length) = encoded.header_length {
            answer
                .headers
                .push((HEADER_CONTENT_LENGTH.to_owned(), length.to_string()));
        }
        answer.body = encoded.body;
        answer
    }
}

/// With a last column too many.
fn widened(mut output: Tensor) -> Tensor {
    output.data = [&output.data[..], &[0; 4]].concat().into();
    output.shape = vec![1, output.data.len() / 4];
    output
}

async fn send(stream: &mut TcpStream, message: &Message) -> io::Result<()> {
    stream
        .write_all(&[message.head().as_bytes(), &message.body[..]].concat())
        .await
}
