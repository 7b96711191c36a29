//! Untrusted text in HTML: nothing but text, in elements and in quoted attributes.

use crate::report::text::{plain, visible};

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// One line, at most `max` characters.
pub(super) fn line(text: &str, max: usize) -> String {
    escaped(&plain(text, max))
}

/// Lines for a `pre`, at most `max` characters.
pub(super) fn lines(text: &str, max: usize) -> String {
    let (shown, left_out) = visible(text, max);
    let more =
        if left_out > 0 { format!("\n… {left_out} more characters") } else { String::new() };
    format!("{}{more}", escaped(&shown))
}

/// A link, or the label alone when the address is not one for browsers.
pub(super) fn link(url: &str, label: &str) -> String {
    if url.starts_with("https://") || url.starts_with("http://") {
        format!(
            "<a rel=\"noreferrer\" href=\"{}\">{}</a>",
            escaped(&plain(url, 2_000)),
            line(label, 200)
        )
    } else {
        line(label, 200)
    }
}

#[cfg(test)]
mod tests {
    use super::{line, lines, link};

    #[test]
    fn text_is_only_text() {
        assert_eq!(
            line("<b a='x' c=\"y\">&amp;\u{202e}\n", 99),
            "&lt;b a=&#39;x&#39; c=&quot;y&quot;&gt;&amp;amp;"
        );
        assert_eq!(lines("a\r\n<i>\tb\u{1b}[0m", 99), "a\n&lt;i&gt;\tb[0m");
        assert_eq!(lines("aaaa", 3), "aaa\n… 1 more characters");
        assert_eq!(link("javascript:alert(1)", "<x>"), "&lt;x&gt;");
        assert_eq!(
            link("https://x/\" onclick=\"y", "#1"),
            "<a rel=\"noreferrer\" href=\"https://x/&quot; onclick=&quot;y\">#1</a>"
        );
        let token = format!("ghp_{}", "a1".repeat(18));
        assert!(!lines(&token, 99).contains(&token) && !line(&token, 99).contains(&token));
    }
}
