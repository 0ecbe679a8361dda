//! Error rows and late rows, column by column.
