//! What can be set in a scene: names, bounds, defaults.

use weir_bio::units::{parse_size, parse_time_ns};

use super::SceneError;

/// Values of one setting at most.
pub(super) const VALUES_MAX: usize = 4096;

/// One thing that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub bounds: Bounds,
    /// What it is by default.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
pub enum Bounds {
    /// Whole numbers between these, one or several: the scene has cases for each.
    Wholes(u64, u64),
    /// A whole number between these.
    Whole(u64, u64),
    /// Some of these words.
    Words(&'static [&'static str]),
    /// Some of these names.
    Known(fn() -> Vec<&'static str>),
    /// Sizes between these, bytes.
    Sizes(u64, u64),
    /// Times between these, ns.
    Times(u64, u64),
    /// Any text.
    Text,
}

/// Settings with their values.
#[derive(Clone, Debug)]
pub struct Settings {
    of: &'static [Setting],
    values: Vec<String>,
}

impl Settings {
    pub(super) fn new(of: &'static [Setting]) -> Settings {
        let values = of.iter().map(|setting| setting.default.to_owned()).collect();
        of.iter().for_each(|setting| setting.check(setting.default).expect("a default"));
        Settings { of, values }
    }

    /// Sets one by text, `name=value`. Several values are separated by commas.
    ///
    /// # Errors
    /// An unknown name, or a value outside its bounds.
    pub fn set(&mut self, text: &str) -> Result<(), SceneError> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(SceneError(format!("{text:?} is not NAME=VALUE")));
        };
        let Some(index) = self.of.iter().position(|setting| setting.name == name) else {
            let names: Vec<&str> = self.of.iter().map(|setting| setting.name).collect();
            let names = names.join(", ");
            return Err(SceneError(format!("no setting {name:?}; there are {names}")));
        };
        self.of[index].check(value).map_err(SceneError)?;
        self.values[index] = value.to_owned();
        Ok(())
    }

    /// Each with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.of.iter().zip(&self.values).map(|(setting, value)| (setting.name, value.as_str()))
    }

    fn value(&self, name: &str) -> &str {
        let found = self.iter().find(|(known, _)| *known == name);
        found.expect("a scene asks for settings that it has").1
    }

    /// Its numbers.
    pub(super) fn wholes(&self, name: &str) -> Vec<u64> {
        self.words(name).iter().map(|word| word.parse().expect("checked when set")).collect()
    }

    /// Its number.
    pub(super) fn whole(&self, name: &str) -> u64 {
        self.value(name).parse().expect("checked when set")
    }

    /// Its words.
    pub(super) fn words(&self, name: &str) -> Vec<&str> {
        self.value(name).split(',').collect()
    }
}

impl Setting {
    fn check(&self, value: &str) -> Result<(), String> {
        let words: Vec<String> = match self.bounds {
            Bounds::Whole(..) => vec![value.to_owned()],
            _ => value.split(',').map(String::from).collect(),
        };
        self.check_all(self.name, &words)
    }

    /// Whether these values are within its bounds, none of them twice; `name` is what it is called.
    pub(super) fn check_all(&self, name: &str, words: &[String]) -> Result<(), String> {
        if words.is_empty() {
            return Err(format!("{name} has no value"));
        }
        // The search for doubles takes the square of it.
        if words.len() > VALUES_MAX {
            return Err(format!("{name} has {} values, more than {VALUES_MAX}", words.len()));
        }
        for (at, word) in words.iter().enumerate() {
            self.check_one(name, word)?;
            if words[..at].contains(word) {
                return Err(format!("{name}={} names {word} twice", words.join(",")));
            }
        }
        Ok(())
    }

    fn check_one(&self, name: &str, word: &str) -> Result<(), String> {
        let among = |known: &[&str]| match known.contains(&word) {
            true => Ok(()),
            false => Err(format!("{name}={word} is none of {}", known.join(", "))),
        };
        let between = |value: Result<u64, String>, least: u64, most: u64| match value {
            Ok(value) if (least..=most).contains(&value) => Ok(()),
            Ok(_) => Err(format!("{name}={word} is outside {}", self.range())),
            Err(why) => Err(format!("{name}={word}: {why}")),
        };
        match self.bounds {
            Bounds::Wholes(least, most) | Bounds::Whole(least, most) => {
                // Each number has one way to be written.
                let number = word.parse::<u64>().ok().filter(|number| number.to_string() == word);
                match number {
                    Some(number) if (least..=most).contains(&number) => Ok(()),
                    Some(_) => Err(format!("{name}={word} is outside {least}..={most}")),
                    None => Err(format!("{name}={word} is not a whole number in {least}..={most}")),
                }
            }
            Bounds::Words(known) => among(known),
            Bounds::Known(known) => among(&known()),
            Bounds::Sizes(least, most) => between(parse_size(word), least, most),
            Bounds::Times(least, most) => between(parse_time_ns(word), least, most),
            Bounds::Text => Ok(()),
        }
    }

    /// What it may be, for people.
    #[must_use]
    pub fn range(&self) -> String {
        match self.bounds {
            Bounds::Wholes(least, most) => format!("{least}..={most}, one or several"),
            Bounds::Whole(least, most) => format!("{least}..={most}"),
            Bounds::Words(known) => format!("some of {}", known.join(", ")),
            Bounds::Known(known) => format!("some of {}", known().join(", ")),
            Bounds::Sizes(least, most) => format!("{least} to {most} bytes"),
            Bounds::Times(least, most) => {
                format!("{} to {} s", least as f64 / 1e9, most as f64 / 1e9)
            }
            Bounds::Text => String::from("text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: &[Setting] = &[
        Setting { name: "n", bounds: Bounds::Wholes(1, 9), default: "1,2", meaning: "" },
        Setting { name: "one", bounds: Bounds::Whole(0, 5), default: "3", meaning: "" },
        Setting { name: "w", bounds: Bounds::Words(&["a", "b"]), default: "a", meaning: "" },
    ];

    #[test]
    fn values_are_taken_within_their_bounds_and_refused_with_them() {
        let mut settings = Settings::new(OF);
        settings.set("n=9,1").expect("numbers");
        settings.set("w=b,a").expect("words");
        assert_eq!((settings.wholes("n"), settings.whole("one")), (vec![9, 1], 3));
        assert_eq!(settings.words("w"), ["b", "a"]);
        let mut why = |text: &str| settings.set(text).expect_err(text).to_string();
        assert_eq!(why("n=10"), "n=10 is outside 1..=9");
        assert_eq!(why("n=1,"), "n= is not a whole number in 1..=9");
        assert_eq!(why("one=+1"), "one=+1 is not a whole number in 0..=5");
        assert_eq!(why("one=1,2"), "one=1,2 is not a whole number in 0..=5");
        assert_eq!(why("n=3,1,3"), "n=3,1,3 names 3 twice");
        assert_eq!(why("n=03"), "n=03 is not a whole number in 1..=9");
        assert_eq!(why("w=c"), "w=c is none of a, b");
        assert_eq!(why("m=1"), "no setting \"m\"; there are n, one, w");
        assert_eq!(why("m"), "\"m\" is not NAME=VALUE");
    }
}
