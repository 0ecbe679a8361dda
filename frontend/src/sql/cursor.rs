//! A walk over one statement's tokens, for the statements that are Weir's own.

use super::limit;
use super::place::Places;
use super::statement::Named;
use crate::error::{Error, sqlstate};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

/// Tokens of one statement without white space, and a place in them.
pub(crate) struct Cursor<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
    places: &'a Places,
}

impl<'a> Cursor<'a> {
    pub fn new(tokens: &'a [TokenWithSpan], places: &'a Places) -> Cursor<'a> {
        Cursor { tokens, at: 0, places }
    }

    pub fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|token| &token.token)
    }

    /// Place of the next token, or just past the statement's end.
    pub fn position(&self) -> usize {
        let here = self.tokens.get(self.at).and_then(|token| self.places.start(token.span));
        here.unwrap_or_else(|| self.end_position())
    }

    fn end_position(&self) -> usize {
        let last = self.tokens.last().and_then(|token| self.places.offset(token.span.end));
        last.unwrap_or_else(|| self.places.characters() + 1)
    }

    /// The statement's own text.
    pub fn sql(&self) -> String {
        match (self.tokens.first(), self.tokens.last()) {
            (Some(first), Some(last)) => self.places.slice(first.span.start, last.span.end).to_owned(),
            _ => String::new(),
        }
    }

    /// True when the next token, `ahead` of here, is this bare word.
    pub fn sees_ahead(&self, ahead: usize, word: &str) -> bool {
        matches!(self.tokens.get(self.at + ahead).map(|token| &token.token),
            Some(Token::Word(found)) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    pub fn sees(&self, word: &str) -> bool {
        self.sees_ahead(0, word)
    }

    /// Takes the words when all of them come next.
    pub fn take(&mut self, words: &[&str]) -> bool {
        let all = words.iter().enumerate().all(|(ahead, word)| self.sees_ahead(ahead, word));
        if all {
            self.at += words.len();
        }
        all
    }

    pub fn take_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.at += 1;
        }
        found
    }

    pub fn expect(&mut self, word: &str) -> Result<(), Error> {
        if self.take(&[word]) { Ok(()) } else { Err(self.expected(word)) }
    }

    pub fn expect_token(&mut self, token: &Token) -> Result<(), Error> {
        if self.take_token(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    /// `42601` that says what should stand here and what does.
    pub fn expected(&self, what: &str) -> Error {
        let found = match self.peek() {
            Some(token) => format!("found '{token}'"),
            None => "the statement ends here".to_owned(),
        };
        Error::new(sqlstate::SYNTAX_ERROR, format!("syntax error: expected {what}, {found}")).at(self.position())
    }

    /// A name, folded to lower case unless it is quoted.
    pub fn name(&mut self, what: &str) -> Result<Named, Error> {
        let position = self.position();
        let Some(Token::Word(word)) = self.peek() else { return Err(self.expected(what)) };
        let text = match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_lowercase(),
        };
        self.at += 1;
        Ok(Named { text, position })
    }

    /// A string constant.
    pub fn string(&mut self, what: &str) -> Result<String, Error> {
        match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            _ => Err(self.expected(what)),
        }
    }

    /// The text of a value in a WITH list: a string, a number or a bare word.
    pub fn value_text(&mut self) -> Result<String, Error> {
        let minus = if self.take_token(&Token::Minus) { "-" } else { "" };
        let text = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) if minus.is_empty() => text.clone(),
            Some(Token::Number(digits, _)) => format!("{minus}{digits}"),
            Some(Token::Word(word)) if minus.is_empty() => word.value.clone(),
            _ => return Err(self.expected("a value: a string in single quotes, a number, true or false")),
        };
        self.at += 1;
        Ok(text)
    }

    /// Errors when something follows.
    pub fn end(&self) -> Result<(), Error> {
        if self.at >= self.tokens.len() { Ok(()) } else { Err(self.expected("the end of the statement")) }
    }

    /// Takes the tokens up to a comma or closing bracket at this level, or to the end.
    pub fn take_item(&mut self) -> &'a [TokenWithSpan] {
        let start = self.at;
        let mut depth = 0usize;
        while let Some(token) = self.peek() {
            match token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket if depth == 0 => break,
                Token::RParen | Token::RBracket => depth -= 1,
                Token::Comma if depth == 0 => break,
                _ => {}
            }
            self.at += 1;
        }
        self.tokens.get(start..self.at).unwrap_or_default()
    }

    /// Takes all tokens that are left.
    pub fn take_rest(&mut self) -> &'a [TokenWithSpan] {
        let rest = self.tokens.get(self.at..).unwrap_or_default();
        self.at = self.tokens.len();
        rest
    }

    /// Hands tokens to sqlparser and wants all of them used.
    pub fn parse<T>(&self, tokens: &[TokenWithSpan], parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>) -> Result<T, Error> {
        let dialect = PostgreSqlDialect {};
        let end = tokens.last().map_or_else(|| self.end_position(), |token| self.places.offset(token.span.end).unwrap_or(1));
        let mut parser = Parser::new(&dialect).with_recursion_limit(limit::PARSER_DEPTH_MAX).with_tokens_with_locations(tokens.to_vec());
        let parsed = parse(&mut parser).map_err(|error| syntax(&error, self.places, end))?;
        let next = parser.peek_token();
        match next.token {
            Token::EOF => Ok(parsed),
            other => Err(Error::new(sqlstate::SYNTAX_ERROR, format!("syntax error at '{other}': the statement should end before it"))
                .at(self.places.start(next.span).unwrap_or(end))),
        }
    }

    pub fn parse_query(&self, tokens: &[TokenWithSpan]) -> Result<Box<ast::Query>, Error> {
        self.parse(tokens, |parser| parser.parse_query())
    }
}

/// sqlparser's error as ours: its text ends in the place, which is cut off and turned into an offset.
pub(crate) fn syntax(error: &ParserError, places: &Places, end: usize) -> Error {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => return limit::too_deep_at(None),
    };
    let (message, location) = split_location(text);
    let position = location.and_then(|location| places.offset(location)).unwrap_or(end);
    let mut message = message.to_owned();
    if message.starts_with("Expected: ") {
        message = message
            .replacen("Expected: ", "expected ", 1)
            .replacen("found: EOF", "found the end of the statement", 1)
            .replace("found: ", "found ");
    } else if let Some(first) = message.get(..1) {
        message = first.to_lowercase() + message.get(1..).unwrap_or_default();
    }
    Error::new(sqlstate::SYNTAX_ERROR, format!("syntax error: {message}")).at(position)
}

fn split_location(text: &str) -> (&str, Option<Location>) {
    let Some((message, place)) = text.rsplit_once(" at Line: ") else { return (text, None) };
    let Some((line, column)) = place.split_once(", Column: ") else { return (text, None) };
    match (line.trim().parse(), column.trim().parse()) {
        (Ok(line), Ok(column)) => (message, Some(Location { line, column })),
        _ => (text, None),
    }
}
