//! A worker and a chain of two servers with every filter between them: the servers end with the sum
//! of all updates.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, Add, ArrayConfig, ArrayFilters, ArrayId, Client, ClientAction, ClientArray,
    ClientConfig, ClientEvent, Clock, Consistency, Epoch, Event, Filter, Key, KeyRange, Keys,
    Layout, Link, LinkLimits, Message, NodeId, Packed, Peer, Precision, PushFilter, Route, Routing,
    Server, ServerConfig, Task, TaskOutcome, Values, Work, WorkerId,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const ARRAY: ArrayId = ArrayId(0);
const RANGE: KeyRange = KeyRange::new(0, 640);
const WIDTH: usize = 2;
const WORKER: Peer = Peer::Worker(WorkerId(0));
const FILTERS: ArrayFilters = ArrayFilters {
    kkt: None,
    top: Some(0.3),
    precision: Precision::F16,
    max_residual: 10_000,
    key_lists: true,
    lz4: true,
};

/// The network: in order and without loss, but for lists of keys that one end has forgotten.
struct TrainingCluster {
    client: Client,
    servers: BTreeMap<NodeId, Server>,
    /// By own end and other end.
    links: BTreeMap<(Peer, Peer), Link>,
    under_way: VecDeque<(Peer, Peer, Packed)>,
    outcomes: Vec<TaskOutcome>,
}

impl TrainingCluster {
    fn new() -> Self {
        let consistency = Consistency::Eventual;
        let array = ArrayConfig {
            layout: Layout::dense(WIDTH, Add),
            policy: Arc::new(consistency),
        };
        let client = ClientArray {
            width: WIDTH,
            consistency,
        };
        let mut cluster = Self {
            client: Client::new(WorkerId(0), ClientConfig::default(), [(ARRAY, client)]),
            servers: BTreeMap::new(),
            links: BTreeMap::new(),
            under_way: VecDeque::new(),
            outcomes: Vec::new(),
        };
        let chain = vec![NodeId(0), NodeId(1)];
        let route = |range| Route {
            array: ARRAY,
            range,
            epoch: Epoch(1),
            chain: chain.clone(),
        };
        let routing = Routing::new(1, RANGE.cut(3).map(route).collect()).unwrap();
        let mut quiet = Vec::new();
        for &node in &chain {
            let mut server = Server::new(node, ServerConfig::default(), [(ARRAY, array.clone())]);
            let message = Message::Routing(routing.clone());
            server.handle(
                Duration::ZERO,
                Event::Received {
                    from: Peer::Server(NodeId(9)),
                    message,
                },
                &mut quiet,
            );
            cluster.servers.insert(node, server);
        }
        for &node in &chain {
            let workers = vec![(WorkerId(0), Clock(0))];
            cluster.tell_server(
                node,
                Event::Members {
                    version: 1,
                    workers,
                },
            );
        }
        cluster.tell_client(ClientEvent::Received(Message::Routing(routing)));
        cluster.deliver();
        cluster
    }

    fn link(&mut self, own: Peer, other: Peer) -> &mut Link {
        self.links
            .entry((own, other))
            .or_insert_with(|| Link::new(LinkLimits::default(), [(ARRAY, FILTERS)]))
    }

    fn send(&mut self, from: Peer, to: Peer, message: Message) {
        let packed = self.link(from, to).pack(message);
        self.under_way.push_back((from, to, packed));
    }

    fn tell_server(&mut self, node: NodeId, event: Event) {
        let mut actions = Vec::new();
        self.servers
            .get_mut(&node)
            .unwrap()
            .handle(Duration::ZERO, event, &mut actions);
        for action in actions {
            if let Action::Send { to, message } = action {
                self.send(Peer::Server(node), to, message);
            }
        }
    }

    fn tell_client(&mut self, event: ClientEvent) {
        let mut actions = Vec::new();
        self.client.handle(Duration::ZERO, event, &mut actions);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<ClientAction>) {
        for action in actions {
            match action {
                ClientAction::Send { to, message } => self.send(WORKER, Peer::Server(to), message),
                ClientAction::Done { outcome, .. } => self.outcomes.push(outcome),
                _ => {}
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((from, to, packed)) = self.under_way.pop_front() {
            let message = self.link(to, from).unpack(packed).unwrap();
            match to {
                Peer::Server(node) => self.tell_server(node, Event::Received { from, message }),
                Peer::Worker(_) => self.tell_client(ClientEvent::Received(message)),
            }
        }
    }

    /// Submits a task, and sees it done.
    fn work(&mut self, work: Work, keys: Keys, clock: u64) -> TaskOutcome {
        let (array, range) = (ARRAY, RANGE);
        let task = Task {
            work,
            array,
            range,
            keys,
            clock: Clock(clock),
            after: Vec::new(),
            priority: 0,
        };
        let mut actions = Vec::new();
        self.client
            .submit(Duration::ZERO, task, &mut actions)
            .unwrap();
        self.act(actions);
        self.deliver();
        assert_eq!(self.outcomes.len(), 1);
        self.outcomes.pop().unwrap()
    }
}

#[test]
fn servers_end_with_the_sum_of_all_updates() {
    let mut cluster = TrainingCluster::new();
    let mut filter = PushFilter::new(ARRAY, WIDTH, FILTERS);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut expected = vec![0.0_f32; RANGE.len() as usize * WIDTH];
    let keys: Vec<Key> = (0..RANGE.len()).filter(|key| key % 7 != 2).collect();
    for clock in 1..=10 {
        let numbers: Vec<f32> = (0..keys.len() * WIDTH)
            .map(|_| f32::from(rng.random_range(-4096_i16..4096)) / 64.0)
            .collect();
        for (&key, row) in keys.iter().zip(numbers.chunks_exact(WIDTH)) {
            let at = key as usize * WIDTH;
            expected[at..at + WIDTH]
                .iter_mut()
                .zip(row)
                .for_each(|(sum, number)| *sum += number);
        }
        let pushed = Keys::List(keys.clone().into());
        let (sent_keys, sent) = filter
            .filter(RANGE, &pushed, &numbers.into(), None)
            .unwrap();
        assert!(matches!(sent, Values::F16(_)));
        assert_eq!(
            cluster.work(Work::Push(sent), sent_keys, clock),
            TaskOutcome::Pushed
        );
    }
    let (rest_keys, rest) = filter.flush(RANGE);
    assert_eq!(
        cluster.work(Work::Push(rest), rest_keys, 11),
        TaskOutcome::Pushed
    );
    for _ in 0..2 {
        let listed = Keys::List((0..RANGE.len()).collect::<Vec<Key>>().into());
        let pulled = cluster.work(Work::Pull, listed, 12);
        assert_eq!(
            pulled,
            TaskOutcome::Pulled {
                clock: Clock(11),
                newest: Clock(11),
                own: Clock(11),
                values: expected.clone().into()
            }
        );
    }
    let links = [
        (WORKER, NodeId(0), Filter::Lz4),
        (WORKER, NodeId(1), Filter::KeyLists),
    ];
    for (own, other, used) in links {
        let bytes = cluster
            .link(own, Peer::Server(other))
            .traffic()
            .of(ARRAY, used);
        assert!(bytes.saved() > 0, "{used:?}: {bytes:?}");
    }
    let answers = cluster
        .link(Peer::Server(NodeId(1)), WORKER)
        .traffic()
        .of(ARRAY, Filter::KeyLists);
    assert!(answers.after * 2 < answers.before, "{answers:?}");
}
