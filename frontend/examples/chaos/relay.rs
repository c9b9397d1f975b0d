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
        Ok(Self { address, shared, _tasks: tasks })
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
            upstream.stream.write_all(&request.bytes()).await?;
            let Ok(Some(answer)) = upstream.next().await else {
                return client.stream.set_zero_linger();
            };
            let is_query = request.line.contains("/infer ");
            match is_query.then(|| self.drawn()).flatten() {
                None => client.stream.write_all(&answer.bytes()).await?,
                Some(spoil) => {
                    self.spoilt.fetch_add(1, Ordering::Relaxed);
                    self.spoilt_answer(spoil, &mut client.stream, answer).await?;
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
            Spoil::NaN => client.write_all(&self.with_nan(answer).bytes()).await,
            Spoil::WrongShape => client.write_all(&self.misshapen(answer).bytes()).await,
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
                let whole = answer.bytes();
                let sent = whole.get(..self.below(whole.len())).unwrap_or_default();
                client.write_all(sent).await?;
                client.set_zero_linger()?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Spoil::Garbage => {
                let garbage = b"\x00\xff\x17 never heard of HTTP\r\n\r\n";
                client.write_all(garbage).await?;
                Err(io::ErrorKind::InvalidData.into())
            }
            Spoil::Error => {
                let failure = Message {
                    line: "HTTP/1.1 500 Internal Server Error".to_owned(),
                    headers: Vec::new(),
                    body: Bytes::from_static(br#"{"error":"out of memory on device 0"}"#),
                };
                client.write_all(&failure.bytes()).await
            }
            Spoil::Endless => {
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n";
                client.write_all(head).await?;
                loop {
                    client.write_all(&[b'1'; 4096]).await?;
                }
            }
        }
    }

    fn with_nan(&self, answer: Message) -> Message {
        let number = [f32::NAN, f32::INFINITY][self.below(2)];
        self.changed(answer, |output| {
            let mut data = output.data.to_vec();
            let place = self.below(data.len() / 4);
            if let Some(bytes) = data.get_mut(4 * place..4 * place + 4) {
                bytes.copy_from_slice(&number.to_le_bytes());
            }
            output.data = data.into();
        })
    }

    /// Sound in itself, and not what the model gives.
    fn misshapen(&self, answer: Message) -> Message {
        let kind = self.below(4);
        self.changed(answer, |output| match kind {
            0 => output.name = "something".to_owned(),
            1 => {
                output.data = [&output.data[..], &output.data[..]].concat().into();
                if let Some(rows) = output.shape.first_mut() {
                    *rows *= 2;
                }
            }
            2 => {
                output.data = [&output.data[..], &[0; 4]].concat().into();
                output.shape = vec![1, output.data.len() / 4];
            }
            _ => output.datatype = Datatype::Int32,
        })
    }

    fn changed(&self, mut answer: Message, change: impl FnOnce(&mut Tensor)) -> Message {
        let length = answer.header(HEADER_CONTENT_LENGTH);
        let length = length.and_then(|length| length.parse().ok());
        let Ok(mut response) = decode_response(answer.body.clone(), length) else {
            return answer;
        };
        if let Some(output) = response.outputs.last_mut() {
            change(output);
        }
        // JSON has no form for what is no number.
        let Ok(encoded) = encode_response(&response, |_| true) else {
            return answer;
        };
        let headers = &mut answer.headers;
        headers.retain(|(name, _)| name != HEADER_CONTENT_LENGTH);
        let length = encoded.header_length.map(|length| length.to_string());
        headers.extend(length.map(|length| (HEADER_CONTENT_LENGTH.to_owned(), length)));
        answer.body = encoded.body;
        answer
    }
}
