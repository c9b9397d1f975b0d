//! Codes, deadlines and messages as they are on the wire.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Buf;
use http::StatusCode;
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::error_text;
use crate::grpc::outline::{Outline, Part};

/// The code that tells what an HTTP status tells. Servers classify an error once, to an HTTP
/// status; this is what it is over gRPC.
pub fn code_of(status: StatusCode) -> Code {
    match status {
        status if status.is_success() => Code::Ok,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Code::Unimplemented,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        status if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Internal,
    }
}

/// The HTTP status that tells what an answer's code tells.
pub fn status_of(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

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

/// Protocol buffers whose parts are bounded. Requests for inference are read before
/// ([`receive`](crate::grpc::receive)).
#[derive(Default)]
pub(crate) struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Looks at a message's outline, then reads it.
pub(crate) struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // A message lies in one piece.
        Outline::of(Part::Other, buffer.chunk())
            .map_err(|error| Status::invalid_argument(error_text(&error)))?;
        self.0.decode(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_meaning_there_and_back() {
        for status in [200, 400, 401, 403, 404, 429, 500, 501, 503, 504] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            assert_eq!(status_of(code_of(status)), status);
        }
        assert_eq!(code_of(StatusCode::UNSUPPORTED_MEDIA_TYPE), Code::InvalidArgument);
        assert_eq!(code_of(StatusCode::BAD_GATEWAY), Code::Internal);
    }

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
