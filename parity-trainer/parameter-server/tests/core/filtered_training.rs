//! A worker and a chain of two servers with every filter between them: the servers end with the sum
//! of all updates.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::*;

const RANGE: KeyRange = KeyRange::new(0, 640);
const WIDTH: usize = 2;
const FILTERS: ArrayFilters = ArrayFilters {
    kkt: None,
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
        let array = array(Layout::dense(WIDTH, Add), consistency);
        let arrays = [(ARRAY, ClientArray { width: WIDTH, consistency })];
        let chain = nodes(&[0, 1]);
        let server = |&node: &NodeId| {
            let arrays = [(ARRAY, array.clone())];
            (node, Server::new(node, ServerConfig::default(), arrays))
        };
        let mut cluster = Self {
            client: Client::new(WorkerId(0), ClientConfig::default(), arrays),
            servers: chain.iter().map(server).collect(),
            links: BTreeMap::new(),
            under_way: VecDeque::new(),
            outcomes: Vec::new(),
        };
        let route = |range| Route::new(ShardRef::new(ARRAY, range, Epoch(1)), chain.clone());
        let message = Message::Routing(table(1, RANGE.cut(3).map(route)));
        for &node in &chain {
            let (from, message) = (REGISTRY, message.clone());
            cluster.tell_server(node, Event::Received { from, message });
            cluster.tell_server(node, Event::Members(members(1, &[0])));
        }
        cluster.tell_client(ClientEvent::Received(message));
        cluster.deliver();
        cluster
    }

    fn link(&mut self, own: Peer, other: Peer) -> &mut Link {
        let link = || Link::new(LinkLimits::default(), [(ARRAY, FILTERS)]);
        self.links.entry((own, other)).or_insert_with(link)
    }

    fn send(&mut self, from: Peer, to: Peer, message: Message) {
        let packed = self.link(from, to).pack(message);
        self.under_way.push_back((from, to, packed));
    }

    fn tell_server(&mut self, node: NodeId, event: Event) {
        let mut actions = Vec::new();
        self.servers.get_mut(&node).unwrap().handle(ms(0), event, &mut actions);
        for (to, message) in sent(actions) {
            self.send(Peer::Server(node), to, message);
        }
    }

    fn tell_client(&mut self, event: ClientEvent) {
        let mut actions = Vec::new();
        self.client.handle(ms(0), event, &mut actions);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<ClientAction>) {
        for action in actions {
            match action {
                ClientAction::Send { to, message } => {
                    self.send(worker(0), Peer::Server(to), message);
                }
                ClientAction::Done { outcome, .. } => self.outcomes.push(outcome),
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
        let task = Task { work, array: ARRAY, range: RANGE, keys, clock: Clock(clock) };
        let mut actions = Vec::new();
        self.client.submit(ms(0), task, &mut actions).unwrap();
        self.act(actions);
        self.deliver();
        assert_eq!(self.outcomes.len(), 1);
        self.outcomes.remove(0)
    }

    fn bytes(&mut self, own: Peer, other: Peer, filter: Filter) -> Bytes {
        self.link(own, other).traffic().of(ARRAY, filter)
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
        let number = |_| f32::from(rng.random_range(-4096_i16..4096)) / 64.0;
        let numbers: Vec<f32> = (0..keys.len() * WIDTH).map(number).collect();
        for (&key, row) in keys.iter().zip(numbers.chunks_exact(WIDTH)) {
            let sums = expected[key as usize * WIDTH..].iter_mut();
            sums.zip(row).for_each(|(sum, number)| *sum += number);
        }
        let pushed = list(keys.clone());
        let (keys, sent) = filter.filter(RANGE, &pushed, &numbers.into(), None).unwrap();
        assert!(matches!(sent, Values::F16(_)));
        assert_eq!(cluster.work(Work::Push(sent), keys, clock), Ok(None));
    }
    let (keys, rest) = filter.flush(RANGE);
    assert_eq!(cluster.work(Work::Push(rest), keys, 11), Ok(None));
    for _ in 0..2 {
        let found = cluster.work(PULL, list(0..RANGE.len()), 12).unwrap().unwrap();
        let clocks = [found.clock, found.newest, found.own];
        assert_eq!((clocks, &found.values[..]), ([Clock(11); 3], &expected[..]));
    }
    for (to, used) in [(0, Filter::Lz4), (1, Filter::KeyLists)] {
        let bytes = cluster.bytes(worker(0), server(to), used);
        assert!(bytes.after < bytes.before, "{used:?}: {bytes:?}");
    }
    let answers = cluster.bytes(server(1), worker(0), Filter::KeyLists);
    assert!(answers.after * 2 < answers.before, "{answers:?}");
}
