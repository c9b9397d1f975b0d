//! Codes with two parity rows, and learned ones.

use super::*;

/// A group of three whose members 0 and 1 sit on instances that take a minute: two parity models
/// that are the linear model itself, since it is linear, give both predictions exactly.
#[tokio::test]
async fn two_late_members_of_a_group_are_reconstructed_exactly_by_two_parity_pools() {
    let repository = repository();
    for row in 0..2 {
        let spec = CodeSpec::new(EncoderKind::Sum, 3, 2);
        add_parity_row(repository.path(), &format!("row-{row}"), row, spec);
    }
    let profile = repository.path().join("slow.toml");
    let slow = "seed = 1\nservice_time = { distribution = \"constant\", ms = 60000.0 }";
    std::fs::write(&profile, slow).unwrap();
    let mut instances = Vec::new();
    for _ in 0..2 {
        let flags = [
            "--fault-profile",
            profile.to_str().unwrap(),
            "--drain-grace-ms",
            "1",
        ];
        instances.push(instance_with(repository.path(), "linear", &flags).await);
    }
    for model in ["linear", "row-0", "row-1"] {
        instances.push(instance(repository.path(), model).await);
    }
    let at: Vec<SocketAddr> = instances.iter().map(Instance::address).collect();
    let strategy = format!(
        "kind = \"coded\"\nencoder = \"sum\"\nk = 3\nr = 2\nhold_back = {{ fixed_ms = 50 }}\n\
         [[models.strategy.parity]]\nmodel = \"row-0\"\ninstances = [\"{}\"]\n\
         [[models.strategy.parity]]\nmodel = \"row-1\"\ninstances = [\"{}\"]\n",
        at[3], at[4]
    );
    let cluster = Cluster::of(instances, repository, |root| {
        strategy_toml(root, &at[..3], &strategy)
    })
    .await;
    cluster.wait_until_all_are_up(5).await;

    let samples = [
        [1.0, 2.0, 3.0, 4.0],
        [0.5, -1.0, 2.0, 0.0],
        [3.0, 0.0, -2.0, 1.0],
    ];
    let mut kinds = Vec::new();
    for answer in cluster.ask_all(samples).await {
        kinds.push(answer.header("parapet-provenance").unwrap().to_owned());
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["exact", "reconstructed", "reconstructed"]);
}

/// One of two members sits on an instance that takes a minute. Its prediction comes back through
/// ONNX Runtime twice over: the encoder's parity query, answered by an instance of the deployed
/// model, and the decoder.
#[tokio::test]
async fn a_learned_code_gives_a_late_members_prediction_back() {
    let repository = repository();
    add_learned_code(repository.path(), "linear-code", learned_metadata());
    let profile = repository.path().join("slow.toml");
    std::fs::write(
        &profile,
        "seed = 1\nservice_time = { distribution = \"constant\", ms = 60000.0 }",
    )
    .unwrap();
    let flags = [
        "--fault-profile",
        profile.to_str().unwrap(),
        "--drain-grace-ms",
        "1",
    ];
    let mut instances = vec![instance_with(repository.path(), "linear", &flags).await];
    instances.push(instance(repository.path(), "linear").await);
    let at: Vec<SocketAddr> = instances.iter().map(Instance::address).collect();
    let strategy = "kind = \"coded\"\nencoder = \"learned\"\nmodel = \"linear-code\"\nk = 2\n\
                    hold_back = { fixed_ms = 50 }";
    let cluster = Cluster::of(instances, repository, |root| {
        strategy_toml(root, &at, strategy)
    })
    .await;
    cluster.wait_until_all_are_up(2).await;

    let samples = [[1.0, 2.0, 3.0, 4.0], [0.5, -1.0, 2.0, 0.0]];
    let mut kinds = Vec::new();
    for answer in cluster.ask_all(samples).await {
        let json = answer.json();
        let code = json["parameters"]["code"].as_str().map(str::to_owned);
        kinds.push((
            answer.header("parapet-provenance").unwrap().to_owned(),
            code,
        ));
    }
    kinds.sort_unstable();
    let reconstructed = ("reconstructed".to_owned(), Some("learned-k2-r1".to_owned()));
    assert_eq!(kinds, [("exact".to_owned(), None), reconstructed]);
}
