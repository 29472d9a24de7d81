//! The parameter `target_session_attrs` of a URL. The client library knows some of its words only.

/// The name of the parameter.
const NAME: &str = "target_session_attrs";

/// A kind of server that is wanted, as in libpq.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Target {
    #[default]
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// A standby, or else any server.
    PreferStandby,
}

const WORDS: [(&str, Target); 6] = [
    ("any", Target::Any),
    ("read-write", Target::ReadWrite),
    ("read-only", Target::ReadOnly),
    ("primary", Target::Primary),
    ("standby", Target::Standby),
    ("prefer-standby", Target::PreferStandby),
];

impl Target {
    fn of(word: &str) -> Result<Self, String> {
        let found = WORDS.iter().find(|(name, _)| *name == word);
        found.map(|(_, target)| *target).ok_or_else(|| {
            let words: Vec<_> = WORDS.iter().map(|(name, _)| *name).collect();
            format!("`{NAME}` is {word:?}, and can be {}", words.join(", "))
        })
    }

    /// Returns why a server is another than the wanted one, from whether transactions are read-only, and whether it is a standby.
    pub(super) const fn refuses(self, read_only: bool, is_standby: bool) -> Option<&'static str> {
        match self {
            Self::ReadWrite if read_only || is_standby => Some("is read-only"),
            Self::ReadOnly if !read_only && !is_standby => Some("is not read-only"),
            Self::Primary if is_standby => Some("is a standby"),
            Self::Standby if !is_standby => Some("is not a standby"),
            _ => None,
        }
    }

    /// Whether another server than a primary is refused.
    pub(super) const fn is_for_writing(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Primary)
    }

    /// Takes the parameter out of a URL, or of a text of names and values. Returns the rest. The last one counts.
    ///
    /// # Errors
    ///
    /// The reason why the word is not known.
    pub(super) fn take(url: &str) -> Result<(String, Self), String> {
        let mut target = Self::Any;
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let Some((base, query)) = url.split_once('?') else {
                return Ok((url.to_owned(), target));
            };
            let mut rest = Vec::new();
            for parameter in query.split('&') {
                match parameter.split_once('=') {
                    Some((NAME, word)) => {
                        target = Self::of(&word.replace("%2D", "-").replace("%2d", "-"))?;
                    }
                    _ => rest.push(parameter),
                }
            }
            let mark = if rest.is_empty() { "" } else { "?" };
            return Ok((format!("{base}{mark}{}", rest.join("&")), target));
        }
        let (mut rest, mut left) = (String::new(), url);
        // A text without this form is an error of the client library.
        while let Some((name, value)) = left.split_once('=') {
            let end = end_of_value(value);
            let (value, after) = value.split_at(end);
            let (before, own) = name.split_at(name.len() - name.trim_start().len());
            if own.trim_end() == NAME {
                target = Self::of(value.trim_start().trim_matches('\''))?;
                rest.push_str(before);
            } else {
                rest.push_str(name);
                rest.push('=');
                rest.push_str(value);
            }
            left = after;
        }
        rest.push_str(left);
        Ok((rest, target))
    }
}

/// Returns the length of the value at the beginning of a text, with white space before it. A value can be in single quotes, and a backslash precedes
/// a character that has no meaning.
fn end_of_value(text: &str) -> usize {
    let start = text.len() - text.trim_start().len();
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, character) in text.char_indices().skip_while(|(at, _)| *at < start) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' if is_quoted => return at + 1,
            '\'' if at == start => is_quoted = true,
            _ if character.is_whitespace() && !is_quoted => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_taken_out_of_a_url() {
        for (word, target) in WORDS {
            let url = format!("postgresql://app@one,two/app?sslmode=disable&{NAME}={word}&port=1");
            let rest = "postgresql://app@one,two/app?sslmode=disable&port=1".to_owned();
            assert_eq!(Target::take(&url), Ok((rest, target)));
            let url = format!("postgres://app@one?{NAME}={word}");
            assert_eq!(Target::take(&url), Ok(("postgres://app@one".to_owned(), target)));
            let pairs = format!("host=one {NAME} = '{word}' port=1");
            assert_eq!(Target::take(&pairs), Ok(("host=one  port=1".to_owned(), target)));
        }
        let none = "postgresql://app@one/app?sslmode=disable";
        assert_eq!(Target::take(none), Ok((none.to_owned(), Target::Any)));
        let other = "host=one password=my_target_session_attrs=x";
        assert_eq!(Target::take(other), Ok((other.to_owned(), Target::Any)));
        // The value of another parameter is not searched.
        let quoted = "host=one password = 'a \\' target_session_attrs=x b' port=1";
        assert_eq!(Target::take(quoted), Ok((quoted.to_owned(), Target::Any)));
        let both = format!("{quoted} target_session_attrs=primary");
        assert_eq!(Target::take(&both), Ok((format!("{quoted} "), Target::Primary)));
        for dash in ["%2d", "%2D"] {
            let url = format!("postgresql://one?{NAME}=read{dash}only");
            assert_eq!(Target::take(&url), Ok(("postgresql://one".to_owned(), Target::ReadOnly)));
        }
        let unknown = Target::take("postgresql://one?target_session_attrs=master");
        assert!(unknown.is_err_and(|reason| reason.contains("prefer-standby")));
    }

    #[test]
    fn servers_are_those_of_libpq() {
        let fit = |target: Target| {
            [(false, false), (true, false), (true, true)]
                .map(|(read_only, is_standby)| target.refuses(read_only, is_standby).is_none())
        };
        assert_eq!(fit(Target::Any), [true, true, true]);
        assert_eq!(fit(Target::ReadWrite), [true, false, false]);
        assert_eq!(fit(Target::ReadOnly), [false, true, true]);
        assert_eq!(fit(Target::Primary), [true, true, false]);
        assert_eq!(fit(Target::Standby), [false, false, true]);
    }
}
