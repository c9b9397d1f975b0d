//! Text of a message that errors and logs repeat.

use std::fmt::{self, Write};

const MAX_CHARS: usize = 200;
/// Longest error text, in bytes.
const MAX_ERROR: usize = 1024;
const CUT: &str = "...";

/// Beginning of a text, at most 200 characters. Errors that repeat a message's text hold it, so
/// that no error is long.
///
/// `Display` and `Debug` escape characters that do not print, which takes at most ten characters
/// for one, and end a text that was cut with `...`.
#[derive(Clone, PartialEq, Eq)]
pub struct Excerpt {
    text: Box<str>,
    is_cut: bool,
}

impl<T: AsRef<str> + ?Sized> From<&T> for Excerpt {
    fn from(text: &T) -> Self {
        let text = text.as_ref();
        let end = text.char_indices().nth(MAX_CHARS).map(|(end, _)| end);
        Self { text: text.split_at(end.unwrap_or(text.len())).0.into(), is_cut: end.is_some() }
    }
}

impl Excerpt {
    fn mark(&self) -> &'static str {
        if self.is_cut { CUT } else { "" }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.text.chars() {
            match char {
                '\'' | '"' | '\\' => formatter.write_char(char)?,
                char => write!(formatter, "{}", char.escape_debug())?,
            }
        }
        formatter.write_str(self.mark())
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}{}", self.text, self.mark())
    }
}

/// Text of an error as servers send it: one line, at most 1 KiB. Last defence behind [`Excerpt`].
pub fn error_text(error: &dyn fmt::Display) -> String {
    let mut line = Line(String::new());
    if write!(line, "{error}").is_err() {
        line.0.push_str(CUT);
    }
    line.0
}

struct Line(String);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|char| self.write_char(char))
    }

    fn write_char(&mut self, char: char) -> fmt::Result {
        if self.0.len() + char.len_utf8() > MAX_ERROR - CUT.len() {
            return Err(fmt::Error);
        }
        self.0.push(if char.is_control() { ' ' } else { char });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_shown_as_str_shows_it() {
        for text in ["", "FP31", "it's", "\"a\\b\"", "line\nbreak", "größer"] {
            assert_eq!(format!("{:?}", Excerpt::from(text)), format!("{text:?}"));
        }
        assert_eq!(Excerpt::from("\"a\\b\"").to_string(), "\"a\\b\"");
        assert_eq!(Excerpt::from("a\u{200b}\n").to_string(), "a\\u{200b}\\n");
    }

    #[test]
    fn a_long_text_is_cut_on_a_character_boundary_and_marked() {
        let whole = "ä".repeat(MAX_CHARS);
        assert_eq!(Excerpt::from(&whole).to_string(), whole);
        let cut = Excerpt::from(&format!("{whole}ä"));
        assert_eq!(cut.to_string(), format!("{whole}..."));
        assert_eq!(format!("{cut:?}"), format!("\"{whole}\"..."));
    }

    #[test]
    fn escapes_grow_no_further_than_ten_characters_each() {
        for char in ['\u{200b}', '\u{10ffff}', '\0', '\u{301}', '"'] {
            let long = char.to_string().repeat(1 << 20);
            let (excerpt, most) = (Excerpt::from(&long), 10 * MAX_CHARS + CUT.len());
            assert!(excerpt.to_string().len() <= most, "{char:?}");
            assert!(format!("{excerpt:?}").len() <= most + 2, "{char:?}");
        }
    }

    #[test]
    fn an_error_text_is_one_line_of_a_kilobyte() {
        assert_eq!(error_text(&"fits"), "fits");
        assert_eq!(error_text(&"two\nlines"), "two lines");
        let long = error_text(&"ä".repeat(1 << 20));
        assert!(long.ends_with("ä...") && long.len() <= MAX_ERROR, "{long}");
    }
}
