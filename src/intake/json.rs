//! From bytes of any common encoding to JSON, and a cursor that knows its path for error messages.

use serde_json::Value;

use super::IntakeError;

/// One source file may be this large, bytes (256 MiB).
pub const MAX_SOURCE_BYTES: usize = 256 * 1024 * 1024;

/// Decodes (UTF-8 with or without byte order mark, UTF-16 with one) and parses. Nesting deeper than
/// 128 is an error of the parser, not a stack overflow.
pub(super) fn parse(bytes: &[u8], name: &str) -> Result<Value, IntakeError> {
    if bytes.len() > MAX_SOURCE_BYTES {
        return Err(IntakeError::TooLarge { name: name.to_owned(), bytes: bytes.len() });
    }
    let foreign = |what| IntakeError::Foreign { name: name.to_owned(), what };
    if let Some(what) = archive(bytes) {
        return Err(foreign(what));
    }
    let text = decode(bytes)
        .filter(|text| !text.contains('\0'))
        .ok_or_else(|| IntakeError::Encoding { name: name.to_owned() })?;
    match text.trim_start().get(..5).unwrap_or(text.trim()).to_ascii_lowercase().as_str() {
        "" => return Err(IntakeError::Empty { name: name.to_owned() }),
        "<?xml" => return Err(foreign("XML")),
        start if start.starts_with('<') => return Err(foreign("HTML or XML")),
        _ => {}
    }
    serde_json::from_str(&text).map_err(|error| IntakeError::Json {
        name: name.to_owned(),
        line: error.line(),
        column: error.column(),
        truncated: error.is_eof(),
        reason: without_position(&error.to_string()),
    })
}

/// The position is said in our own words.
fn without_position(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).to_owned()
}

/// Archives by their first bytes.
fn archive(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x1F, 0x8B, ..] => Some("a gzip archive"),
        [b'P', b'K', 3 | 5, 4 | 6, ..] => Some("a zip archive"),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Some("a zstd archive"),
        _ => None,
    }
}

/// Text of the bytes, `None` when they are in no encoding that we read.
fn decode(bytes: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => std::str::from_utf8(rest).ok().map(Into::into),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        // JSON begins with ASCII, so that a zero tells UTF-16 without its mark.
        [1..=255, 0, ..] => utf16(bytes, u16::from_le_bytes),
        [0, 1..=255, ..] => utf16(bytes, u16::from_be_bytes),
        _ => std::str::from_utf8(bytes).ok().map(Into::into),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<std::borrow::Cow<'_, str>> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let units = pairs.iter().map(|pair| unit(*pair));
    char::decode_utf16(units).collect::<Result<String, _>>().ok().map(Into::into)
}

/// A value and the way to it from the root of the file. The way is only spelled out in errors.
#[derive(Clone, Copy)]
pub(super) struct At<'p, 'v> {
    /// The value there.
    pub value: &'v Value,
    parent: Option<&'p At<'p, 'v>>,
    step: Step<'p>,
    name: &'p str,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Key(&'p str),
    Item(&'p str, usize),
}

impl<'p, 'v> At<'p, 'v> {
    /// The file.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The root of the file called `name`.
    pub fn root(value: &'v Value, name: &'p str) -> Self {
        Self { value, parent: None, step: Step::Root, name }
    }

    /// The member, `None` when it is absent or null.
    pub fn get<'s>(&'s self, key: &'s str) -> Option<At<'s, 'v>> {
        let value = self.value.get(key).filter(|v| !v.is_null())?;
        Some(At { value, parent: Some(self), step: Step::Key(key), name: self.name })
    }

    /// The member as text.
    pub fn text(&self, key: &str) -> Result<Option<&'v str>, IntakeError> {
        self.get(key).map(|at| at.value.as_str().ok_or_else(|| at.wrong("text"))).transpose()
    }

    /// The member as an object.
    pub fn object<'s>(&'s self, key: &'s str) -> Result<Option<At<'s, 'v>>, IntakeError> {
        self.get(key).map(At::expect_object).transpose()
    }

    /// This value, which has to be an object.
    pub fn expect_object(self) -> Result<Self, IntakeError> {
        if self.value.is_object() { Ok(self) } else { Err(self.wrong("an object")) }
    }

    /// The member as an array's items, `None` when it is absent or null.
    pub fn items<'s>(&'s self, key: &'s str) -> Result<Option<Vec<At<'s, 'v>>>, IntakeError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        let Value::Array(items) = at.value else { return Err(at.wrong("an array")) };
        Ok(Some(
            items
                .iter()
                .enumerate()
                .map(|(index, value)| At {
                    value,
                    parent: Some(self),
                    step: Step::Item(key, index),
                    name: self.name,
                })
                .collect(),
        ))
    }

    /// The member as objects in an array; an absent one is empty.
    pub fn objects<'s>(&'s self, key: &'s str) -> Result<Vec<At<'s, 'v>>, IntakeError> {
        self.items(key)?.unwrap_or_default().into_iter().map(At::expect_object).collect()
    }

    /// The member as an array index; negative means absent (SARIF's default is -1).
    pub fn index(&self, key: &str) -> Result<Option<usize>, IntakeError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        let number = at.value.as_f64().ok_or_else(|| at.wrong("a number"))?;
        Ok(at.value.as_u64().and_then(|n| usize::try_from(n).ok()).or(if number < 0.0 {
            None
        } else {
            // Beyond every array: an index that cannot be met, not a missing one.
            Some(usize::MAX)
        }))
    }

    /// The member as a line number from 1; zero, negative and absurd numbers are no line.
    pub fn line(&self, key: &str) -> Result<Option<u32>, IntakeError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        let number = match at.value {
            Value::String(text) => text.trim().parse::<f64>().ok(),
            value => value.as_f64(),
        };
        let number = number.ok_or_else(|| at.wrong("a number"))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "range checked"
        )]
        Ok((1.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32))
    }

    /// The error that something else was expected here.
    pub fn wrong(&self, expected: &'static str) -> IntakeError {
        IntakeError::Shape {
            name: self.name.to_owned(),
            place: self.place(),
            expected,
            found: kind(self.value),
        }
    }

    /// The error that a member is missing here.
    pub fn missing(&self, key: &str) -> IntakeError {
        IntakeError::MissingMember {
            name: self.name.to_owned(),
            place: self.place(),
            key: key.to_owned(),
        }
    }

    /// JSON path, e.g. `$.runs[0].results`.
    pub fn place(&self) -> String {
        let mut place = self.parent.map_or_else(String::new, At::place);
        match self.step {
            Step::Root => place.push('$'),
            Step::Key(key) => {
                place.push('.');
                place.push_str(key);
            }
            Step::Item(key, index) => place.push_str(&format!(".{key}[{index}]")),
        }
        place
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_marks_and_utf16_are_read() {
        let text = "{\"a\": \"\u{20ac}\"}";
        let utf8 = [b"\xEF\xBB\xBF".as_slice(), text.as_bytes()].concat();
        let little: Vec<u8> = "\u{feff}"
            .encode_utf16()
            .chain(text.encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect();
        let big: Vec<u8> = "\u{feff}"
            .encode_utf16()
            .chain(text.encode_utf16())
            .flat_map(u16::to_be_bytes)
            .collect();
        let unmarked = [little[2..].to_vec(), big[2..].to_vec()];
        for bytes in [utf8, little, big].into_iter().chain(unmarked) {
            assert_eq!(parse(&bytes, "x").unwrap()["a"], "\u{20ac}");
        }
    }

    #[test]
    fn other_kinds_of_files_are_called_by_their_name() {
        for (bytes, said) in [
            (b"<!DOCTYPE html><html></html>".as_slice(), "x is HTML or XML, not JSON"),
            (b"\xEF\xBB\xBF\n<?xml version=\"1.0\"?><checkstyle/>", "x is XML, not JSON"),
            (b"\x1F\x8B\x08\0\0", "x is a gzip archive, not JSON"),
            (b"PK\x03\x04\0", "x is a zip archive, not JSON"),
            (b"\0\0\0\0", "x is not text in UTF-8, nor in UTF-16 with a byte order mark"),
            (b"{\"a\": \"\0\"}", "x is not text in UTF-8, nor in UTF-16 with a byte order mark"),
            (b" \r\n", "x is empty"),
        ] {
            assert_eq!(parse(bytes, "x").unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_stack_overflow() {
        let deep = "[".repeat(2_000_000);
        assert!(matches!(parse(deep.as_bytes(), "x"), Err(IntakeError::Json { .. })));
    }

    #[test]
    fn the_source_size_is_bounded() {
        // A zeroed allocation of this size is never touched, so it costs nothing.
        let large = vec![0u8; MAX_SOURCE_BYTES + 1];
        assert!(matches!(parse(&large, "x"), Err(IntakeError::TooLarge { .. })));
    }

    #[test]
    fn a_wrong_type_is_named_by_its_path() {
        let value = serde_json::json!({"runs": [{"results": 42}]});
        let root = At::root(&value, "x.sarif");
        let runs = root.objects("runs").unwrap();
        let error = runs[0].items("results").err().unwrap();
        assert_eq!(
            error.to_string(),
            "x.sarif: $.runs[0].results should be an array, but is a number"
        );
    }
}
