//! gRPC codes of errors that have an HTTP status, and the other way round.

use http::StatusCode;
use tonic::Code;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_meaning_there_and_back() {
        for status in [200, 400, 401, 403, 404, 429, 500, 501, 503, 504] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            assert_eq!(status_of(code_of(status)), status);
        }
        assert_eq!(
            code_of(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Code::InvalidArgument
        );
        assert_eq!(code_of(StatusCode::BAD_GATEWAY), Code::Internal);
    }
}
