//! The top level of the file: which keys it has, and one of them alone.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Refuses keys that are not among `known`.
pub(super) fn check(text: &str, known: &[&str]) -> Result<(), toml::de::Error> {
    toml::Deserializer::parse(text)?.deserialize_map(Keys(known))
}

/// The value of the key `name`, if it is there.
pub(super) fn read<T: DeserializeOwned>(
    text: &str,
    name: &str,
) -> Result<Option<T>, toml::de::Error> {
    toml::Deserializer::parse(text)?.deserialize_map(One(name, PhantomData))
}

/// The line of the table of this name among those of a `kind`, counted from 1.
pub(super) fn line_of(kind: &str, text: &str, name: &str) -> Option<usize> {
    #[derive(Deserialize)]
    struct Named {
        name: toml::Spanned<String>,
    }
    let disks: Vec<Named> = read(text, kind).ok()??;
    let named = disks.into_iter().find(|disk| disk.name.get_ref() == name)?;
    Some(text[..named.name.span().start].matches('\n').count() + 1)
}

#[derive(Clone, Copy)]
struct Keys<'a>(&'a [&'a str]);

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Key(self.0))?.is_some() {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// One key, which has to be known.
struct Key<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let key = String::deserialize(from)?;
        if self.0.contains(&key.as_str()) {
            return Ok(());
        }
        let known: Vec<String> = self.0.iter().map(|known| format!("`{known}`")).collect();
        let known = known.join(", ");
        Err(D::Error::custom(format!("unknown field `{key}`, expected one of {known}")))
    }
}

struct One<'a, T>(&'a str, PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for One<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
