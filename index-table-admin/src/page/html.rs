//! Text as HTML, and the frame of each view.

use std::fmt::Write as _;

/// Escapes text for HTML, including attribute values in quotation marks.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Escapes text for a part of a path or a query.
pub(super) fn url(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a `String` can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Returns a whole page. `up` is the relative path of the overview, such as `../`.
pub(super) fn page(title: &str, up: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>{title} – index-table</title><link rel=stylesheet href=\"{up}style.css\">\
         <body><a class=skip href=\"#main\">Skip to the contents</a>\
         <header><nav aria-label=Pages><a href=\"{up}./\">Overview</a> <a href=\"{up}metrics\">Metrics</a></nav>\
         </header><main id=main><h1>{title}</h1>{body}</main></html>"
    )
}

/// Returns a table. The cells are HTML.
pub(super) fn table(caption: &str, columns: &[(&str, bool)], rows: &[Vec<String>]) -> String {
    let class = |is_number: bool| if is_number { " class=n" } else { "" };
    let mut html =
        format!("<div class=scroll><table><caption>{}</caption><thead><tr>", escape(caption));
    for (name, is_number) in columns {
        let _ = write!(html, "<th scope=col{}>{}</th>", class(*is_number), escape(name));
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (cell, (_, is_number)) in row.iter().zip(columns) {
            let _ = write!(html, "<td{}>{cell}</td>", class(*is_number));
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div>"
}

/// Returns a bar of this part of the whole.
pub(super) fn bar(part: u64, whole: u64, label: &str) -> String {
    let width = u128::from(part) * 100 / u128::from(whole.max(1));
    let label = escape(label);
    format!(
        "<svg class=bar role=img aria-label=\"{label}\" viewBox=\"0 0 100 8\" preserveAspectRatio=none>\
         <rect class=whole width=100 height=8 /><rect class=part width={width} height=8 /></svg>"
    )
}

/// The style of all pages.
pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8886;--part:#2a6fdb;--error:#b00020}
@media(prefers-color-scheme:dark){:root{--part:#7db0ff;--error:#ff8a80}}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:70rem;padding:0 1rem 2rem}
header{padding:.75rem 0;border-bottom:1px solid var(--line)}nav a{margin-right:1rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:Canvas;padding:.25rem}
:focus-visible{outline:3px solid var(--part);outline-offset:2px}
.scroll{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;width:100%}caption{text-align:left;font-weight:600;padding:.25rem 0}
th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{width:8rem;height:.6rem;display:block;margin-top:.45rem}.whole{fill:var(--line)}.part{fill:var(--part)}
form{display:flex;gap:.5rem;flex-wrap:wrap;align-items:end;margin:1rem 0}label{display:block}
input,button{font:inherit;padding:.3rem .5rem}.error{color:var(--error)}.pages a{margin-right:1rem}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_not_become_markup() {
        assert_eq!(escape("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
        assert_eq!(url("a b/../\"<é"), "a%20b%2F%2E%2E%2F%22%3C%C3%A9");
        assert!(!page("<script>", "", "").contains("<script>"));
        assert!(!table("<script>", &[("<script>", false)], &[]).contains("<script>"));
        assert!(!bar(1, 2, "\"><script>").contains("<script>"));
    }
}
