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

/// The text in the place of a password.
const HIDDEN: &str = "***";

/// Shows a place without its passwords: a directory, a URL of any form, or settings such as `host=db password=…`, also if it is
/// refused.
pub(crate) fn shown(place: &Path) -> String {
    of_place(&place.to_string_lossy())
}

/// Shows a message without passwords: neither those in the arguments of this process, nor those of other URLs and settings.
pub(crate) fn without_passwords(message: &str) -> String {
    let mut shown = message.to_owned();
    for argument in std::env::args_os().skip(1) {
        let argument = argument.to_string_lossy();
        // A message can quote the value of an option alone.
        let value = argument.split_once('=').map_or("", |(_, value)| value);
        for own in [&*argument, value] {
            let hidden = of_place(own);
            if hidden != own {
                shown = shown.replace(own, &hidden);
            }
        }
    }
    of_words(&shown)
}

fn of_place(text: &str) -> String {
    if text.contains("://") {
        // A password can have characters that should be encoded.
        return without_user_password(&without_settings(text, |it| it == '&'));
    }
    without_settings(text, char::is_whitespace)
}

/// Hides the passwords of URLs and settings in a text, whose passwords have neither spaces nor quotes.
fn of_words(text: &str) -> String {
    let is_end = |it: char| it.is_whitespace() || "`'\"<>".contains(it);
    let text = without_settings(text, |it| is_end(it) || it == '&');
    let words = text.split_inclusive(is_end).map(|word| {
        let (word, end) = word.split_at(word.trim_end_matches(is_end).len());
        without_user_password(word) + end
    });
    words.collect()
}

/// Hides the values of settings such as `password=…`, up to a character that ends a value.
fn without_settings(text: &str, ends: impl Fn(char) -> bool) -> String {
    const NAME: &str = "password";
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.to_ascii_lowercase().find(NAME) {
        let (before, after) = rest.split_at(at + NAME.len());
        shown += before;
        rest = after;
        let Some(value) = after.trim_start().strip_prefix('=') else { continue };
        let value = value.trim_start();
        let length = quoted(value).or_else(|| value.find(&ends)).unwrap_or(value.len());
        if length > 0 {
            shown = shown + "=" + HIDDEN;
            rest = value.get(length..).unwrap_or_default();
        }
    }
    shown + rest
}

/// Returns the length of a value between single quotes; `None` if it has none. A missing quote is at the end.
fn quoted(value: &str) -> Option<usize> {
    let inside = value.strip_prefix('\'')?;
    let mut is_escaped = false;
    for (at, character) in inside.char_indices() {
        match character {
            '\'' if !is_escaped => return Some(at + 2),
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    Some(value.len())
}

/// Hides the password of `scheme://user:password@host`, or of the same without a host.
fn without_user_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    if let Some((user, host)) = rest.rsplit_once('@') {
        return match user.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:{HIDDEN}@{host}"),
            None => url.to_owned(),
        };
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.split(',').all(is_host) {
        return url.to_owned();
    }
    let user = authority.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}:{HIDDEN}")
}

/// Whether this is a host, which may have a port or be an address with colons, and not a user with a password.
fn is_host(text: &str) -> bool {
    let Some((host, after)) = text.split_once(':') else { return true };
    let is_port = after.bytes().all(|it| it.is_ascii_digit());
    let is_address =
        after.contains(':') && after.bytes().all(|it| it.is_ascii_hexdigit() || it == b':');
    host.is_empty() || host.starts_with('[') || is_port || is_address
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
            ("postgres://app@db:5432/app?password=a@b", "postgres://app@db:5432/app?password=***"),
            (
                "postgres://db/app?password=a'b c&schema=d",
                "postgres://db/app?password=***&schema=d",
            ),
            ("postgres://app:secret", "postgres://app:***"),
            ("postgres://app:secret?password=pw@db/app", "postgres://app:***"),
            ("host=db password=pw user=app", "host=db password=*** user=app"),
            ("host=db password = 'a \\' b' user=app", "host=db password=*** user=app"),
            ("--archive=postgres://app:pw@db/app", "--archive=postgres://app:***@db/app"),
            ("postgres://a,b:5432,5433/app", "postgres://a,b:5432,5433/app"),
            ("postgres://::1:5432/app", "postgres://::1:5432/app"),
            ("http://[::1]:3000/", "http://[::1]:3000/"),
            ("data/a:b@c", "data/a:b@c"),
            ("password=", "password="),
        ] {
            assert_eq!(shown(Path::new(place)), expected);
        }
    }

    #[test]
    fn messages_are_shown_without_passwords() {
        for (message, expected) in [
            (
                "unexpected argument 'postgres://app:pw@db/app' found, with `password=a&b`",
                "unexpected argument 'postgres://app:***@db/app' found, with `password=***&b`",
            ),
            (
                "no `host=db password='a b'`; a `password` is",
                "no `host=db password=***`; a `password` is",
            ),
            (
                "`postgresql://db:5432/app (schema a)` is closed",
                "`postgresql://db:5432/app (schema a)` is closed",
            ),
        ] {
            assert_eq!(without_passwords(message), expected);
        }
    }

    #[test]
    fn passwords_are_encoded() {
        assert_eq!(encoded("a b&c=%é"), "a%20b%26c%3D%25%C3%A9");
    }
}
