//! A name server of some lines, and what is found by asking it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use parapet_frontend::discovery::{Discovery, Dns, Settings, follow};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::{named, until, until_found};

/// Names with address records, and services with ports and targets.
#[derive(Debug, Clone, Default)]
struct Zone {
    addresses: Vec<(&'static str, [u8; 4])>,
    services: Vec<(&'static str, u16, &'static str)>,
    /// Answers nothing at all.
    silent: bool,
}

impl Zone {
    fn records(&self, name: &Name, kind: RecordType) -> Vec<Record> {
        let asked = name.to_utf8().to_lowercase();
        let addresses = self.addresses.iter().filter(|(name, _)| *name == asked);
        let services = self.services.iter().filter(|(name, ..)| *name == asked);
        let target = |name: &str| Name::from_utf8(name).unwrap();
        let data: Vec<RData> = match kind {
            RecordType::A => addresses.map(|(_, ip)| RData::A(A(Ipv4Addr::from(*ip)))).collect(),
            RecordType::SRV => services
                .map(|(_, port, host)| RData::SRV(SRV::new(0, 0, *port, target(host))))
                .collect(),
            _ => Vec::new(),
        };
        let record = |data| Record::from_rdata(name.clone(), 60, data);
        data.into_iter().map(record).collect()
    }
}

/// Serves a zone that can be changed; its address.
async fn serve(zone: Zone) -> (watch::Sender<Zone>, SocketAddr) {
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = socket.local_addr().unwrap();
    let (sender, zone) = watch::channel(zone);
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        loop {
            let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
            let zone = zone.borrow().clone();
            if zone.silent {
                continue;
            }
            let mut message = Message::from_vec(&buffer[..len]).unwrap();
            let query = message.queries.first().unwrap().clone();
            let records = zone.records(query.name(), query.query_type());
            message.metadata.message_type = MessageType::Response;
            if records.is_empty() {
                message.metadata.response_code = ResponseCode::NXDomain;
            }
            message.additionals.clear();
            message.add_answers(records);
            let answer = message.to_vec().unwrap();
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    (sender, address)
}

fn settings(resolver: SocketAddr) -> Settings {
    Settings { resolver: Some(resolver), interval_ms: Some(100), ..Settings::default() }
}

fn by_address(resolver: SocketAddr, name: &str) -> Dns {
    let mut settings = settings(resolver);
    (settings.dns, settings.port) = (Some(name.to_owned()), Some(9001));
    Dns::new(settings)
}

#[tokio::test]
async fn address_records_are_instances_at_one_port_and_are_asked_for_again() {
    const NAME: &str = "replicas.test.";
    let zone =
        Zone { addresses: vec![(NAME, [10, 0, 0, 1]), (NAME, [10, 0, 0, 2])], ..Zone::default() };
    let (change, server) = serve(zone.clone()).await;
    let mut view = follow(by_address(server, NAME), "test".to_owned());
    let of = |addresses: [&'static str; 2]| named(&addresses.map(|at| (at, "replicas.test")));
    let both = of(["10.0.0.1:9001", "10.0.0.2:9001"]);
    until_found(&mut view, &both).await;

    change.send_modify(|zone| zone.addresses[0].1 = [10, 0, 0, 3]);
    let changed = of(["10.0.0.2:9001", "10.0.0.3:9001"]);
    until_found(&mut view, &changed).await;

    change.send_modify(|zone| zone.addresses.clear());
    until(&mut view, "NXDOMAIN", |view| !view.is_current).await;
    // A name that is gone changes nothing.
    assert_eq!(view.borrow().addresses, changed);
    change.send_replace(zone);
    until_found(&mut view, &both).await;
}

#[tokio::test]
async fn service_records_name_ports() {
    const SERVICE: &str = "_oip._tcp.test.";
    let zone = Zone {
        addresses: vec![("one.test.", [10, 0, 0, 1]), ("two.test.", [10, 0, 0, 2])],
        services: vec![(SERVICE, 9001, "one.test."), (SERVICE, 9102, "two.test.")],
        silent: false,
    };
    let (change, server) = serve(zone).await;
    let mut settings = settings(server);
    settings.srv = Some(SERVICE.to_owned());
    let mut dns = Dns::new(settings);
    let found = named(&[("10.0.0.1:9001", "one.test"), ("10.0.0.2:9102", "two.test")]);
    assert_eq!(dns.next().await.unwrap(), found);

    // The address of another name is another instance: it has another certificate.
    change.send_modify(|zone| zone.addresses[1].1 = [10, 0, 0, 1]);
    change.send_modify(|zone| zone.services = vec![(SERVICE, 9001, "two.test.")]);
    let found = named(&[("10.0.0.1:9001", "two.test")]);
    assert_eq!(dns.next().await.unwrap(), found);

    // Of several names of one address the first in the alphabet counts, in whatever order they
    // come.
    change.send_modify(|zone| zone.services.push((SERVICE, 9001, "one.test.")));
    let found = named(&[("10.0.0.1:9001", "one.test")]);
    assert_eq!(dns.next().await.unwrap(), found);
}

#[tokio::test]
async fn a_name_server_that_says_nothing_is_an_error_that_names_it() {
    let silent = Zone { silent: true, ..Zone::default() };
    let (_change, server) = serve(silent).await;
    let found = by_address(server, "replicas.test.").next().await;
    let error = found.unwrap_err().to_string();
    assert!(error.starts_with("DNS, replicas.test.: "), "{error}");
}
