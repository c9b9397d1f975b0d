//! Codes with two parity rows, and learned ones.

use super::*;

/// Instances of `linear`, the first `slow` of which take a minute, and of the other models.
async fn instances(root: &std::path::Path, slow: usize, others: &[&str]) -> Vec<Instance> {
    let profile = root.join("slow.toml");
    let minute = "seed = 1\nservice_time = { distribution = \"constant\", ms = 60000.0 }";
    std::fs::write(&profile, minute).unwrap();
    let profile = profile.to_str().unwrap();
    let mut instances = Vec::new();
    for _ in 0..slow {
        let flags = ["--fault-profile", profile, "--drain-grace-ms", "1"];
        instances.push(instance_of(root, "linear", &flags).await);
    }
    for model in others {
        instances.push(instance_of(root, model, &[]).await);
    }
    instances
}

/// Provenance and code of the answers to `samples`, which must be right, in order of their names.
async fn kinds<const N: usize>(cluster: &Cluster, samples: [[f32; 4]; N]) -> Vec<(String, String)> {
    let kind = |answer: Answer| {
        let code = answer.json()["parameters"]["code"].clone();
        of(answer.header("parapet-provenance").unwrap(), code.as_str().unwrap_or_default())
    };
    let answers = cluster.served.ask_all(samples).await;
    let mut kinds: Vec<_> = answers.into_iter().map(kind).collect();
    kinds.sort_unstable();
    kinds
}

fn of(kind: &str, code: &str) -> (String, String) {
    (kind.to_owned(), code.to_owned())
}

/// A group of three whose members 0 and 1 sit on instances that take a minute: two parity models
/// that are the linear model itself, since it is linear, give both predictions exactly.
#[tokio::test]
async fn two_late_members_of_a_group_are_reconstructed_exactly_by_two_parity_pools() {
    let repository = repository();
    for row in 0..2 {
        add_parity_row(repository.path(), &format!("row-{row}"), row, sum(3, 2));
    }
    let instances = instances(repository.path(), 2, &["linear", "row-0", "row-1"]).await;
    let at: Vec<SocketAddr> = instances.iter().map(|one| one.address).collect();
    let strategy = format!(
        "kind = \"coded\"\nencoder = \"sum\"\nk = 3\nr = 2\nhold_back = {{ fixed_ms = 50 }}\n\
         [[models.strategy.parity]]\nmodel = \"row-0\"\ninstances = [\"{}\"]\n\
         [[models.strategy.parity]]\nmodel = \"row-1\"\ninstances = [\"{}\"]\n",
        at[3], at[4]
    );
    let text = strategy_toml(repository.path(), &at[..3], &strategy);
    let cluster = Cluster::of(instances, repository, &text).await;
    cluster.served.wait_until_all_are_up(5).await;

    let samples = [SAMPLE, [0.5, -1.0, 2.0, 0.0], [3.0, 0.0, -2.0, 1.0]];
    let kinds = kinds(&cluster, samples).await;
    let late = of("reconstructed", "sum-k3-r2");
    assert_eq!(kinds, [of("exact", ""), late.clone(), late]);
}

/// One of two members sits on an instance that takes a minute. Its prediction comes back through
/// ONNX Runtime twice over: the encoder's parity query, answered by an instance of the deployed
/// model, and the decoder.
#[tokio::test]
async fn a_learned_code_gives_a_late_members_prediction_back() {
    let repository = repository();
    add_learned_code(repository.path(), "linear-code", learned_metadata());
    let instances = instances(repository.path(), 1, &["linear"]).await;
    let at: Vec<SocketAddr> = instances.iter().map(|one| one.address).collect();
    let strategy = "kind = \"coded\"\nencoder = \"learned\"\nmodel = \"linear-code\"\nk = 2\n\
                    hold_back = { fixed_ms = 50 }";
    let text = strategy_toml(repository.path(), &at, strategy);
    let cluster = Cluster::of(instances, repository, &text).await;
    cluster.served.wait_until_all_are_up(2).await;

    let kinds = kinds(&cluster, [SAMPLE, [0.5, -1.0, 2.0, 0.0]]).await;
    let late = of("reconstructed", "learned-k2-r1");
    assert_eq!(kinds, [of("exact", ""), late]);
}
