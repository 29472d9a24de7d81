//! Stores on a PostgreSQL server.

use std::path::Path;

use index_table::Store;

use crate::failure::Failure;

/// A store in a schema of a database.
#[cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "without the feature, it is refused")
)]
pub(crate) struct Server {
    /// The URL for the server, without the schema.
    url: String,
    schema: Option<String>,
}

impl Server {
    /// Reads a place with a URL `postgresql://USER@HOST:PORT/DATABASE?schema=SCHEMA`. Returns `None` for a directory.
    pub(crate) fn of(place: &Path) -> Result<Option<Self>, Failure> {
        let Some(url) = place.to_str() else { return Ok(None) };
        let is_url = |scheme: &&str| {
            url.get(..scheme.len()).is_some_and(|own| own.eq_ignore_ascii_case(scheme))
        };
        if !["postgresql://", "postgres://"].iter().any(is_url) {
            return Ok(None);
        }
        let (base, options) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut schema) = (Vec::new(), None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.strip_prefix("schema=") {
                Some(name) => schema = Some(decoded(name)?),
                None => kept.push(option.to_owned()),
            }
        }
        let has_password = base.split_once("://").is_some_and(|(_, rest)| {
            rest.split_once('@').is_some_and(|(user, _)| user.contains(':'))
        });
        if !has_password && !kept.iter().any(|option| option.starts_with("password=")) {
            let password = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty());
            kept.extend(password.map(|password| format!("password={}", encoded(&password))));
        }
        let mark = if kept.is_empty() { "" } else { "?" };
        Ok(Some(Self { url: format!("{base}{mark}{}", kept.join("&")), schema }))
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn connect(&self, read_only: bool, create: bool) -> Result<Store, Failure> {
        let options = Store::options().create(create).read_only(read_only);
        let options = match &self.schema {
            Some(schema) => options.schema(schema),
            None => options,
        };
        Ok(options.connections(4).connect(&self.url)?)
    }

    #[cfg(not(feature = "postgres"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn connect(&self, _: bool, _: bool) -> Result<Store, Failure> {
        Err(Failure::arguments(
            "this program was built without the feature `postgres`, so it can't open a store on a server",
        ))
    }
}

/// Shows a place without its password: a directory, or a URL of any form, also of one that is refused.
pub(crate) fn shown(place: &Path) -> String {
    const HIDDEN: &str = "***";
    let text = place.display().to_string();
    let Some((scheme, rest)) = text.split_once("://") else { return text };
    // A password can have characters that should be encoded.
    let user = rest.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host)));
    let rest =
        user.map_or_else(|| rest.to_owned(), |(user, host)| format!("{user}:{HIDDEN}@{host}"));
    let (base, options) = rest.split_once('?').unwrap_or((&rest, ""));
    let options = options.split('&').map(|option| match option.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().ends_with("password") => {
            format!("{name}={HIDDEN}")
        }
        _ => option.to_owned(),
    });
    let options = options.collect::<Vec<_>>().join("&");
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{base}{mark}{options}")
}

/// Replaces `%` and two hex digits with their byte.
fn decoded(text: &str) -> Result<String, Failure> {
    let wrong = || Failure::arguments(format!("the schema `{text}` in the URL is not text"));
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return Err(wrong()) };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = digit(*high).zip(digit(*low)).ok_or_else(wrong)?;
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Replaces all bytes except letters and digits with `%` and two hex digits.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(place: &str) -> Option<(String, Option<String>)> {
        let server = Server::of(Path::new(place)).expect("a URL")?;
        Some((server.url, server.schema))
    }

    #[test]
    fn a_url_is_a_server_and_all_else_a_directory() {
        let url = "postgresql://app:pw@127.0.0.1:5432/app";
        assert_eq!(read(url), Some((url.to_owned(), None)));
        assert_eq!(
            read(&format!("{url}?connect_timeout=3&schema=my%20shop")),
            Some((format!("{url}?connect_timeout=3"), Some("my shop".to_owned())))
        );
        for directory in ["data/shop", "postgresql", "./postgresql:/x", "mysql://a/b", ""] {
            assert_eq!(read(directory), None, "{directory}");
        }
        assert!(Server::of(Path::new("postgres://a/b?schema=%f")).is_err());
    }

    #[test]
    fn places_are_shown_without_passwords() {
        for (place, expected) in [
            ("postgresql://app:p/w@127.0.0.1:5432/app", "postgresql://app:***@127.0.0.1:5432/app"),
            ("postgresq://app:a@b:c?d@db/app", "postgresq://app:***@db/app"),
            (
                "postgres://app@db/app?schema=a&password=pw",
                "postgres://app@db/app?schema=a&password=***",
            ),
            ("postgres://db/app?sslPassword=pw", "postgres://db/app?sslPassword=***"),
            ("http://user:pw@127.0.0.1:3000/admin/", "http://user:***@127.0.0.1:3000/admin/"),
            ("postgresql://app@127.0.0.1:5432/app", "postgresql://app@127.0.0.1:5432/app"),
            ("data/a:b@c", "data/a:b@c"),
        ] {
            assert_eq!(shown(Path::new(place)), expected);
        }
    }

    #[test]
    fn passwords_are_encoded() {
        assert_eq!(encoded("a b&c=%é"), "a%20b%26c%3D%25%C3%A9");
    }
}
