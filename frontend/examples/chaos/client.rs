//! Clients that ask questions whose answers they know.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parapet_open_inference::{
    Encoded, Encoding, HEADER_CONTENT_LENGTH, InferRequest, Tensor, encode_request,
};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::Run;
use crate::check::{Answer, Circumstances, Expected, GRACE, Question, Violation, judge};
use crate::configuration::{CLASS_BACKUP, CLASS_HEDGED, CLASS_PLAIN};
use crate::frontends::Frontend;
use crate::model::{DEPLOYED, INPUTS};
use crate::wire::Reader;

/// Of a request that names no deadline.
const DEADLINE: Duration = Duration::from_millis(800);
/// Longer than anything waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// One client, which asks one thing after the other.
pub struct Client {
    number: usize,
    random: ChaCha8Rng,
    shared: Arc<Run>,
    connection: Option<(Arc<Frontend>, Reader<TcpStream>)>,
    asked: u64,
}

/// A question, how it is put, and when its client goes away, if it does.
struct Put {
    question: Question,
    encoded: Encoded,
    key: Option<usize>,
    gives_up: Option<Duration>,
}

impl Client {
    pub fn new(number: usize, seed: u64, shared: Arc<Run>) -> Self {
        let own = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            number,
            random: ChaCha8Rng::seed_from_u64(seed ^ own),
            shared,
            connection: None,
            asked: 0,
        }
    }

    /// Asks until `end`. Most of the time at a steady rate; then all clients at once without a
    /// pause; then one alone, whose groups no other query fills.
    pub async fn run(mut self, end: Duration, calm: Duration) {
        while self.shared.clock.elapsed() < end {
            let phase = self.shared.clock.elapsed().as_secs() % 20;
            let is_calm = self.shared.clock.elapsed() >= calm;
            let pause = match phase {
                13..15 if !is_calm => 0..2,
                15..20 if self.number > 0 => {
                    self.shared.clock.pass(Duration::from_millis(100)).await;
                    continue;
                }
                _ => 0..180,
            };
            let pause = Duration::from_millis(self.random.random_range(pause));
            self.shared.clock.pass(pause).await;
            let put = self.draw();
            if let Err(violation) = self.ask(put, is_calm).await {
                self.shared.record.violated(violation);
                self.connection = None;
            }
        }
    }

    /// Asks once for what overflows the model.
    pub async fn poison(mut self) {
        let key = self.random.random_range(0..3);
        let put = self.put(Expected::Overflow, Some(key));
        if let Err(violation) = self.ask(put, false).await {
            self.shared.record.violated(violation);
        }
    }

    fn draw(&mut self) -> Put {
        let key = self.random.random_range(0..3);
        let (expected, key) = match self.random.random_range(0..100) {
            0 => (Expected::Unauthorized, None),
            1..3 => (Expected::BadRequest, Some(key)),
            _ => (Expected::Answer, Some(key)),
        };
        self.put(expected, key)
    }

    fn put(&mut self, expected: Expected, key: Option<usize>) -> Put {
        let random = &mut self.random;
        self.asked += 1;
        let rows = if random.random_bool(0.8) { 1 } else { random.random_range(2..=3) };
        let sample = |random: &mut ChaCha8Rng| match expected {
            Expected::Overflow => 3e38,
            _ => f32::from(random.random_range(-500_i16..=500)),
        };
        let samples: Vec<f32> = (0..rows * INPUTS).map(|_| sample(random)).collect();
        let class = match random.random_range(0..100) {
            0..70 => None,
            70..78 => Some(CLASS_PLAIN),
            78..89 => Some(CLASS_HEDGED),
            _ => Some(CLASS_BACKUP),
        };
        let mut request = InferRequest {
            id: Some(format!("{}-{}", self.number, self.asked)),
            ..InferRequest::default()
        };
        let allow_approximate = random.random_bool(0.85);
        let parameters = &mut request.parameters;
        if !allow_approximate {
            parameters.insert("allow_approximate".to_owned(), false.into());
        }
        if let Some(class) = class {
            parameters.insert("class".to_owned(), class.into());
        }
        let deadline = deadline(random, &mut request);
        if random.random_bool(0.5) {
            request.ask_binary_outputs();
        }
        let mut encoding = if random.random_bool(0.5) { Encoding::Binary } else { Encoding::Json };
        let mut sent = samples.clone();
        if expected == Expected::BadRequest {
            // Numbers that are none, and a column too few.
            match random.random_bool(0.5) {
                true => {
                    sent[random.random_range(0..rows * INPUTS)] = f32::NAN;
                    encoding = Encoding::Binary;
                }
                false => sent.truncate(rows * (INPUTS - 1)),
            }
        }
        let shape = vec![rows, sent.len() / rows];
        request.inputs.extend(Tensor::from_f32("input", shape, &sent));
        let encoded = encode_request(&request, encoding)
            .unwrap_or(Encoded { body: bytes::Bytes::new(), header_length: None });
        let gives_up = random.random_bool(0.03);
        let gives_up = gives_up.then(|| Duration::from_millis(random.random_range(0..40)));
        let question = Question {
            id: request.id.unwrap_or_default(),
            rows,
            samples,
            class,
            allow_approximate,
            deadline,
            expected,
        };
        Put { question, encoded, key, gives_up }
    }

    /// The frontend that the next request goes to: mostly the client's own.
    fn frontend(&mut self) -> Arc<Frontend> {
        let is_own = self.random.random_bool(0.9);
        self.shared.frontends.at(self.number + usize::from(!is_own))
    }

    async fn ask(&mut self, put: Put, calm: bool) -> Result<(), Violation> {
        let frontend = self.frontend();
        let mut reader = self.connected(&frontend).await?;
        let Put { question, encoded, key, gives_up } = put;
        let unanswered = |asked: Instant, reason: String| {
            if self.shared.clock.stalled_since(asked) {
                self.shared.record.noted.lock().excused += 1;
                return Ok(());
            }
            let (id, name) = (&question.id, &frontend.name);
            let said = format!("{id} has no answer from {name}: {reason}");
            Err(("CG-1", said))
        };
        let asked = Instant::now();
        frontend.seen.lock().sent += 1;
        let head = self.head(&question, &encoded, key);
        let whole = [head.as_bytes(), &encoded.body[..]].concat();
        if let Err(error) = reader.stream.write_all(&whole).await {
            return unanswered(asked, error.to_string());
        }
        // The frontend's deadline begins when it has the request, not when the client writes it.
        let sent = tokio::time::Instant::now();
        if let Some(after) = gives_up {
            tokio::time::sleep(after).await;
            frontend.seen.lock().abandoned += 1;
            self.shared.record.noted.lock().abandoned += 1;
            return Ok(());
        }
        let limit = sent + question.deadline + GRACE;
        let next = tokio::time::timeout_at(limit + PATIENCE, reader.next_by(limit)).await;
        let (message, missing_at) = match next {
            Ok((Ok(Some(message)), missing_at)) => (message, missing_at),
            Ok((Ok(None), _)) => return unanswered(asked, "the connection was closed".to_owned()),
            Ok((Err(error), _)) => return unanswered(asked, error.to_string()),
            Err(_) => return unanswered(asked, "nothing came".to_owned()),
        };
        let took = asked.elapsed();
        let now = Circumstances {
            stalled: self.shared.clock.stalled_since(asked),
            delay: self.shared.clock.delay_since(asked),
            calm,
            ..self.shared.record.circumstances(asked)
        };
        let status = message.status().unwrap_or_default();
        let closes = message.header("connection") == Some("close");
        let missing_at = missing_at.map(|looked| looked - sent);
        let answer =
            Answer { status, headers: message.headers, body: message.body, took, missing_at };
        let verdict = judge(&question, &answer, now).map_err(|(invariant, said)| {
            let (id, name) = (&question.id, &frontend.name);
            (invariant, format!("{id} at {name}: {said} {question:?}"))
        })?;
        *frontend.seen.lock().answers.entry(verdict).or_default() += 1;
        self.shared.record.answered(&question, verdict, took, now);
        let left_over = reader.left_over();
        if left_over > 0 {
            return Err(("CG-1", format!("{left_over} bytes after an answer")));
        }
        if !closes {
            self.connection = Some((frontend, reader));
        }
        Ok(())
    }

    /// A connection to it on which nothing is left over.
    async fn connected(
        &mut self,
        frontend: &Arc<Frontend>,
    ) -> Result<Reader<TcpStream>, Violation> {
        if let Some((to, reader)) = self.connection.take()
            && Arc::ptr_eq(&to, frontend)
        {
            match reader.stream.try_read(&mut [0; 64]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(reader),
                Ok(0) | Err(_) => {}
                Ok(_) => return Err(("CG-1", "more than one answer to a request".to_owned())),
            }
        }
        let stream = TcpStream::connect(frontend.address).await;
        let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let name = &frontend.name;
        let failed = |error: io::Error| ("CG-1", format!("{name}: cannot connect: {error}"));
        stream.map(Reader::new).map_err(failed)
    }

    fn head(&self, question: &Question, encoded: &Encoded, key: Option<usize>) -> String {
        let keys = &self.shared.frontends.topology.keys;
        let key = key.map_or("parapet_nobodys_key", |key| keys[key].text());
        let mut head = format!(
            "POST /v2/models/{DEPLOYED}/infer HTTP/1.1\r\nhost: x\r\nx-request-id: {}\r\n\
             authorization: Bearer {key}\r\ncontent-type: {}\r\ncontent-length: {}\r\n",
            question.id,
            encoded.content_type(),
            encoded.body.len(),
        );
        if let Some(length) = encoded.header_length {
            head += &format!("{HEADER_CONTENT_LENGTH}: {length}\r\n");
        }
        head + "\r\n"
    }
}

/// When it must be answered, in one of the ways in which a client can say so.
fn deadline(random: &mut ChaCha8Rng, request: &mut InferRequest) -> Duration {
    let (way, ms) = match random.random_range(0..100) {
        0..60 => return DEADLINE,
        60..85 => ("timeout", random.random_range(300..1_500)),
        85..90 => ("timeout", random.random_range(60..120)),
        _ => ("deadline_unix_ms", random.random_range(300..1_500)),
    };
    let value = if way == "timeout" {
        1_000 * ms
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or_default() + ms
    };
    request.parameters.insert(way.to_owned(), value.into());
    Duration::from_millis(ms)
}
