//! Servers played by the test.
