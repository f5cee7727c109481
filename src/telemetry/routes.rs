//! Bounded labels for what clients choose freely: methods and paths.

use http::Method;

/// Paths of the OpenAI, Anthropic and SGLang APIs that get a label of their own; all else is
/// `other`.
const ROUTES: [&str; 27] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/models",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/v1/classify",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/realtime",
    "/v1/loads",
    "/generate",
    "/health",
    "/health_generate",
    "/readiness",
    "/liveness",
    "/workers",
    "/get_loads",
    "/get_model_info",
    "/get_server_info",
    "/flush_cache",
];

/// The `route` label of a path.
#[must_use]
pub fn route_label(path: &str) -> &'static str {
    ROUTES
        .iter()
        .find(|route| **route == path)
        .copied()
        .unwrap_or("other")
}

/// The `method` label: the methods of RFC 9110 and PATCH (RFC 5789), else `_OTHER`.
#[must_use]
pub fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        Method::TRACE => "TRACE",
        Method::CONNECT => "CONNECT",
        _ => "_OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_invent_does_not_become_a_label() {
        assert_eq!(route_label("/v1/chat/completions"), "/v1/chat/completions");
        assert_eq!(route_label("/v1/chat/completions/x"), "other");
        assert_eq!(
            method_label(&Method::from_bytes(b"BREW").unwrap()),
            "_OTHER"
        );
    }
}
