//! The checks of each request, and the headers of each response.

use std::{fmt, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use subtle::ConstantTimeEq as _;

use super::{Page, refusal, up};

/// The secret that each request must have, as `Authorization: Bearer` or as the password of `Basic`.
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    pub(crate) const fn new(secret: String) -> Self {
        Self(secret)
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, value)) = given.and_then(|given| given.split_once(' ')) else {
            return false;
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            return is_equal(self.0.as_bytes(), value.trim().as_bytes());
        }
        // Browsers ask for a name and a password. The name is ignored.
        if !scheme.eq_ignore_ascii_case("basic") {
            return false;
        }
        let decoded = BASE64.decode(value.trim()).unwrap_or_default();
        let at = decoded.iter().position(|byte| *byte == b':').map_or(0, |at| at + 1);
        is_equal(self.0.as_bytes(), decoded.get(at..).unwrap_or_default())
    }
}

/// Compares in a time that depends on the lengths only.
pub(crate) fn is_equal(secret: &[u8], given: &[u8]) -> bool {
    secret.ct_eq(given).into()
}

/// Whether a browser sends the request for a page of another site, or under a name of another site that points to this
/// address. A link that the user follows is not foreign: the other site can't read the response, and no request changes
/// anything.
fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let fetch = |part| text(HeaderName::from_static(part)).unwrap_or_default();
    let is_link = fetch("sec-fetch-mode") == "navigate" && fetch("sec-fetch-dest") == "document";
    !is_link && is_of_other_site(headers) || has_other_origin(headers)
}

/// Whether a browser sends the request for a page of another site, also as a link.
pub(crate) fn is_of_other_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes).unwrap_or_default();
    ![&b""[..], b"same-origin", b"none"].contains(&site) || has_other_origin(headers)
}

fn has_other_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_none_or(|(_, origin)| origin.as_bytes() != host)
}

/// Whether the name in the request is a name of this machine. Another site can make its own name point to this machine,
/// but its name is then in the request.
fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name)
}

pub(super) async fn check(State(page): State<Arc<Page>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let refused = if ![Method::GET, Method::HEAD].contains(request.method()) {
        Some((StatusCode::METHOD_NOT_ALLOWED, "this page is read-only: use GET"))
    } else if is_foreign(headers) {
        Some((StatusCode::FORBIDDEN, "requests from other sites are refused"))
    } else {
        match &page.token {
            Some(token) if !token.is_in(headers) => {
                Some((StatusCode::UNAUTHORIZED, "the token is missing or wrong"))
            }
            // The command without a token listens on this machine only.
            None if page.recorded.is_some() && !is_local(headers) => {
                Some((StatusCode::FORBIDDEN, "use the address `localhost`"))
            }
            _ => None,
        }
    };
    let mut response = match refused {
        Some((status, message)) => refusal(status, message, &up(request.uri().path())),
        None => next.run(request).await,
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        let ask = HeaderValue::from_static("Basic realm=\"index-table\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
    }
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(HeaderName, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token::new("secret:1".to_owned());
        let is_in = |value| token.is_in(&headers(&[(header::AUTHORIZATION, value)]));
        assert!(is_in("Bearer secret:1"));
        assert!(is_in("Basic YTpzZWNyZXQ6MQ=="), "a:secret:1");
        for wrong in
            ["Bearer secret:", "Bearer secret:2", "Bearer", "secret:1", "Basic ???", "Basic YTo="]
        {
            assert!(!is_in(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }

    #[test]
    fn requests_of_other_sites_are_foreign() {
        let (host, origin) = ((header::HOST, "localhost:7"), header::ORIGIN);
        let site = HeaderName::from_static("sec-fetch-site");
        assert!(!is_foreign(&headers(std::slice::from_ref(&host))));
        assert!(!is_foreign(&headers(&[host.clone(), (origin.clone(), "http://localhost:7")])));
        assert!(is_foreign(&headers(&[host.clone(), (origin.clone(), "http://localhost:8")])));
        assert!(is_foreign(&headers(&[host.clone(), (origin, "null")])));
        assert!(is_foreign(&headers(&[host.clone(), (site.clone(), "cross-site")])));
        assert!(!is_foreign(&headers(&[host.clone(), (site.clone(), "none")])));
        let [mode, to] = ["sec-fetch-mode", "sec-fetch-dest"].map(HeaderName::from_static);
        for site_of in ["cross-site", "same-site"] {
            let request = |how, what| {
                headers(&[
                    host.clone(),
                    (site.clone(), site_of),
                    (mode.clone(), how),
                    (to.clone(), what),
                ])
            };
            assert!(!is_foreign(&request("navigate", "document")), "a link");
            assert!(is_foreign(&request("navigate", "iframe")), "a frame");
            assert!(is_foreign(&request("no-cors", "image")), "an image");
            assert!(is_foreign(&request("cors", "empty")), "a script");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        let is_local = |host| super::is_local(&headers(&[(header::HOST, host)]));
        assert!(is_local("localhost:7") && is_local("127.0.0.1") && is_local("[::1]:80"));
        assert!(!is_local("evil.example:7") && !is_local("localhost.evil.example"));
    }
}
