//! The text form of golden vectors, and values as text.

use arrow::array::{Array, ArrayRef, BinaryArray, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_planner::schema::{Column, ColumnType, Schema};

/// One expression with its rows.
pub struct Block {
    file: PathBuf,
    pub line: usize,
    pub sql: String,
    /// The line of the columns.
    head: String,
    pub columns: Vec<Column>,
    pub bound: Vec<String>,
    pub retired: bool,
    pub rows: Vec<Row>,
}

/// Values of the columns, and what comes out.
pub struct Row {
    pub line: usize,
    pub values: Vec<Option<String>>,
    pub want: Want,
}

/// What comes out: a value, or an error with these words.
pub enum Want {
    Value(Option<String>),
    Error(String),
}

impl Block {
    pub fn schema(&self) -> Schema {
        Schema(self.columns.clone())
    }

    /// A place in the block's file.
    pub fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.file.file_name().unwrap().to_string_lossy())
    }

    /// Writes one more bound form below the columns.
    pub fn add(&mut self, bound: &str) {
        let text = fs::read_to_string(&self.file).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let head = [self.sql.as_str(), self.head.as_str()];
        let at = lines.windows(2).position(|pair| pair == head).unwrap_or_else(|| panic!("{}: columns come second", self.sql));
        lines.insert(at + 2, format!("  bound {bound}"));
        fs::write(&self.file, lines.join("\n") + "\n").unwrap();
        self.bound.push(bound.to_owned());
    }
}

/// All blocks of all files, in order.
pub fn blocks() -> Vec<Block> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/functions");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "txt"));
    files.sort();
    files.iter().flat_map(|file| blocks_of(file)).collect()
}

fn blocks_of(file: &Path) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (at, line) in fs::read_to_string(file).unwrap().lines().enumerate() {
        let line_number = at + 1;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{}:{line_number}: {line}", file.display());
        let Some(inner) = line.strip_prefix("  ") else {
            blocks.push(Block {
                file: file.to_owned(),
                line: line_number,
                sql: line.to_owned(),
                head: String::new(),
                columns: Vec::new(),
                bound: Vec::new(),
                retired: false,
                rows: Vec::new(),
            });
            continue;
        };
        if let Some(rest) = inner.strip_prefix("columns ") {
            let columns = rest.split(", ").map(|text| named(text, &place)).collect();
            // One text may stand for several types.
            let twice =
                blocks.split_last().is_some_and(|(last, before)| before.iter().any(|block| block.sql == last.sql && block.head == line));
            assert!(!twice, "{place}: twice");
            let block = blocks.last_mut().unwrap_or_else(|| panic!("{place}: no expression above"));
            (block.columns, block.head) = (columns, line.to_owned());
            continue;
        }
        let block = blocks.last_mut().unwrap_or_else(|| panic!("{place}: no expression above"));
        match inner.split_once(' ').unwrap_or((inner, "")) {
            ("bound", rest) => block.bound.push(rest.to_owned()),
            ("retired", _) => block.retired = true,
            ("differs" | "from", rest) => assert!(!rest.is_empty(), "{place}: says nothing"),
            _ => {
                let (values, want) = row(inner).unwrap_or_else(|| panic!("{place}: not a row"));
                assert_eq!(values.len(), block.columns.len(), "{place}: one value for each column");
                block.rows.push(Row { line: line_number, values, want });
            }
        }
    }
    blocks
}

fn named(text: &str, place: &str) -> Column {
    let (name, ty) = text.split_once(' ').unwrap_or_else(|| panic!("{place}: a column is a name and a type"));
    let ty = ColumnType::try_from(ty.to_owned()).unwrap_or_else(|error| panic!("{place}: {error:?}"));
    Column { name: name.to_owned(), ty, nullable: true }
}

/// `VALUE | VALUE -> VALUE`.
fn row(text: &str) -> Option<(Vec<Option<String>>, Want)> {
    let (mut values, mut rest) = (Vec::new(), text);
    loop {
        let (value, after) = value(rest)?;
        values.push(value);
        if let Some(after) = after.strip_prefix(" -> ") {
            if let Some(words) = after.strip_prefix("error ") {
                return Some((values, Want::Error(words.to_owned())));
            }
            return self::value(after).filter(|(_, end)| end.is_empty()).map(|(value, _)| (values, Want::Value(value)));
        }
        rest = after.strip_prefix(" | ")?;
    }
}

/// One value and the text behind it: bare, or in quotes with `\n`, `\t`, `\r`, `\'` and `\\`.
fn value(text: &str) -> Option<(Option<String>, &str)> {
    let Some(quoted) = text.strip_prefix('\'') else {
        let end = [" | ", " -> "].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
        let (bare, after) = text.split_at(end);
        return (!bare.is_empty()).then(|| ((bare != "NULL").then(|| bare.to_owned()), after));
    };
    let (mut value, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Some((Some(value), &quoted[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                c @ ('\'' | '\\') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

/// Values of a type from their texts; bytes are `\x` and hexadecimal digits.
pub fn column(texts: &[Option<&str>], ty: ColumnType) -> Result<ArrayRef, String> {
    if ty == ColumnType::Bytea {
        let bytes: Option<Vec<Option<Vec<u8>>>> = texts.iter().map(|text| text.map_or(Some(None), |text| hex(text).map(Some))).collect();
        let bytes = bytes.ok_or_else(|| format!("{texts:?}: bytes are \\x and digits"))?;
        return Ok(Arc::new(bytes.iter().map(Option::as_deref).collect::<BinaryArray>()));
    }
    let array: StringArray = texts.iter().copied().collect();
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&array, &ty.to_arrow(), &options).map_err(|error| format!("{texts:?} as {ty}: {error}"))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x").filter(|digits| digits.is_ascii() && digits.len() % 2 == 0)?;
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// Values as text, so that two arrays compare readably.
pub fn shown(array: &dyn Array) -> Result<Vec<String>, String> {
    let options = FormatOptions::new().with_null("NULL");
    let format = ArrayFormatter::try_new(array, &options).map_err(|error| error.to_string())?;
    (0..array.len()).map(|at| format.value(at).try_to_string().map_err(|error| error.to_string())).collect()
}
