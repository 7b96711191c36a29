//! Comments that come by mail carry what they answer to.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// The line with which mail clients introduce the answered text, in the languages of the larger
/// ones' defaults (Gmail, Outlook, Apple Mail, Thunderbird).
static INTRODUCTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^ (?: (?:on|am|le|el|il|op|em|den|w\ dniu) \b .* \b
            (?: wrote | schrieb .* | a\ écrit | escribió | ha\ scritto | schreef .* | escreveu | skrev .* | napisał(?:a|\(a\))? )
            \s* : \s* $
          | -{2,} \s* (?: original\ (?:message|appointment) | forwarded\ message | ursprüngliche\ nachricht
                | message\ d'origine | mensaje\ original | mensagem\ original | messaggio\ originale
                | oorspronkelijk\ bericht | исходное\ сообщение | 原始邮件 | 原始郵件 ) \s* -{2,} \s* $
          | (?: begin\ forwarded\ message | anfang\ der\ weitergeleiteten\ nachricht ) \s* : \s* $
          | _{20,} \s* $ )",
    )
    .ok()
});

/// One line of the block of headers with which Outlook introduces the answered text, bold or not:
/// who it is from (first group), or one of the others.
static HEADER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^ \W{0,4} (?:
            (from | von | de | da | van | från | fra | od | от | 发件人 | 寄件者 | 差出人)
          | sent | date | to | cc | subject
          | gesendet | datum | an | betreff
          | envoyé | à | objet | enviado(?:\ el)? | para | asunto | assunto
          | inviato | a | oggetto | verzonden | aan | onderwerp
          | skickat | till | ämne | sendt | til | emne | wysłano | do | temat
          | отправлено | дата | кому | тема
          | 发送时间 | 日期 | 收件人 | 主题 | 寄件日期 | 收件者 | 主旨 | 送信日時 | 宛先 | 件名
        ) \W{0,3} [:：]",
    )
    .ok()
});

/// An address in angle brackets, as mail clients write it and as GitHub masks it.
static ADDRESS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"<[^<>\s]+@[^<>\s]+>").ok());

/// Longest introduction over several lines, in characters.
const INTRODUCTION_LENGTH: usize = 300;

/// The first line (from 1) that is a signature or answered mail; beyond the end where there is none.
/// `shown` are the ascending byte ranges of code, quotes and HTML, which introduce nothing.
pub(super) fn quoted_from(text: &str, shown: &[Range<usize>]) -> usize {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut offset = 0;
    for (nth, line) in lines.iter().enumerate() {
        let content = offset + (line.len() - line.trim_start().len());
        offset += line.len() + 1;
        let before = shown.partition_point(|range| range.start <= content);
        if before > 0 && shown.get(before - 1).is_some_and(|range| range.contains(&content)) {
            continue;
        }
        // RFC 3676 §4.3: "-- " alone; many clients drop its blank. GitHub's own mails use a dash.
        if matches!(line.trim_end(), "--" | "\u{2014}") || introduces(&lines, nth) {
            return nth + 1;
        }
    }
    usize::MAX
}

/// Does an introduction begin on this line? It may be wrapped over three lines, and then holds a
/// date or an address.
fn introduces(lines: &[&str], nth: usize) -> bool {
    let Some(pattern) = INTRODUCTION.as_ref() else { return false };
    if is_header_block(lines, nth) {
        return true;
    }
    let first = lines.get(nth).copied().unwrap_or_default();
    let mut joined = String::new();
    for (wrapped, line) in lines.iter().skip(nth).take(3).enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with(['/', '>']) {
            return false;
        }
        if wrapped > 0 {
            joined.push(' ');
        }
        joined.push_str(line.trim());
        if joined.chars().count() > INTRODUCTION_LENGTH {
            return false;
        }
        let dated = joined.bytes().any(|b| b.is_ascii_digit() || b == b'@');
        // What is wrapped begins with one of the two that it names.
        let begins = wrapped == 0 || is_dated(first) || has_address(first);
        if pattern.is_match(&joined) && (wrapped == 0 || dated)
            || begins && names_who_and_when(&joined)
        {
            return true;
        }
    }
    false
}

/// Whatever the language: an address, a year, and a colon at the end.
fn names_who_and_when(text: &str) -> bool {
    text.ends_with([':', '：']) && is_dated(text) && has_address(text)
}

fn is_dated(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|run| run.len() == 4 && run.starts_with("20"))
}

fn has_address(text: &str) -> bool {
    ADDRESS.as_ref().is_some_and(|address| address.is_match(text))
}

/// `From:` and at least two more headers directly below it.
fn is_header_block(lines: &[&str], nth: usize) -> bool {
    let Some(header) = HEADER.as_ref() else { return false };
    let mut block = lines.iter().skip(nth).take(3).map(|line| header.captures(line));
    let from = block.next().flatten().is_some_and(|found| found.get(1).is_some());
    from && block.filter(Option::is_some).count() == 2
}

#[cfg(test)]
mod tests {
    use super::quoted_from;

    #[test]
    fn introductions_and_signatures_are_found() {
        for text in [
            "x\nOn Mon, Jan 13, 2025, A <a@b.c> wrote:\n",
            "x\nOn Mon, Jan 13, 2025 at 5:00 PM A Person\n<a@b.c> wrote:\n",
            "x\nAm 13.01.2025 um 10:00 schrieb A. Person:\n",
            "x\nLe lun. 13 janv. 2025 à 10:00, A a écrit :\n",
            "x\n-----Original Message-----\n",
            "x\n-- \nA",
            "x\n\u{2014}\nReply to this email directly",
            "x\nFrom: A <a@b.c>\nSent: Monday\nTo: o/r\nSubject: Re: y\n",
            "x\n**Von:** A\n**Gesendet:** Montag\n**An:** o/r\n",
            "x\nDe : A\nEnvoyé : lundi\nÀ : o/r\n",
            "x\n2025年1月13日(月) 10:00 A <***@***.***>:\n",
            "x\nA <a@b.c> 于2025年1月13日周一 10:00写道：\n",
            "x\nпн, 13 янв. 2025 г. в 10:00, A <a@b.c>:\n",
            "x\nA Very Long Name <a@b.c>, 13 Oca 2025 Pzt,\n10:00 tarihinde yazdı:\n",
            "x\npon., 13 sty 2025 o 10:00 A <a@b.c> napisał(a):\n",
            "x\nBegin forwarded message:\n",
            "x\n------------------ 原始邮件 ------------------\n",
        ] {
            assert_eq!(quoted_from(text, &[]), 2, "{text}");
        }
        for text in [
            "x\nOn it.\n/overhaul resume\nhe wrote:",
            "x\n---\n",
            "x\nOn hold",
            "--x",
            "x\nAsk <a@b.c> about 3:\n",
            "x\nFrom: main\nTo: dev\n\nok",
        ] {
            assert_eq!(quoted_from(text, &[]), usize::MAX, "{text}");
        }
        assert_eq!(quoted_from("`\n-- \n`", std::slice::from_ref(&(2..5))), usize::MAX);
    }
}
