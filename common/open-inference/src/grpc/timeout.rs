//! `grpc-timeout`: how long the client will wait.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// The time that a request may take from now on, if its metadata say so in the form that gRPC gives
/// it: up to eight digits and a unit.
pub fn timeout_of(metadata: &MetadataMap) -> Option<Duration> {
    let value = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Option<Duration> {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", value.parse().ok()?);
        timeout_of(&metadata)
    }

    #[test]
    fn every_unit_is_read_and_nothing_else() {
        assert_eq!(parsed("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parsed("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parsed("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parsed("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parsed("99999999u"), Some(Duration::from_micros(99_999_999)));
        assert_eq!(parsed("0n"), Some(Duration::ZERO));
        for wrong in ["", "5", "S", "5s", "-5S", "+5S", "123456789S", "5 S", "ü"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(timeout_of(&MetadataMap::new()), None);
    }
}
