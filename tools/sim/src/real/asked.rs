//! The arguments of a verb.

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) seed: u64,
    pub(super) count: Option<u64>,
    pub(super) each: Option<u64>,
    pub(super) any: Option<u64>,
    pub(super) point: Option<String>,
    pub(super) fs: Option<Vec<String>>,
    pub(super) call: Option<String>,
}

impl Asked {
    pub(super) fn parse(args: &[String], seed: u64) -> Result<Self, String> {
        let mut asked = Self { seed, ..Self::default() };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--seed" => asked.seed = number()?,
                "--count" => asked.count = Some(number()?),
                "--each" => asked.each = Some(number()?),
                "--any" => asked.any = Some(number()?),
                "--point" => asked.point = Some(value.clone()),
                "--fs" => asked.fs = Some(value.split(',').map(str::to_owned).collect()),
                "--call" => asked.call = Some(value.clone()),
                _ => return Err(format!("{name} is not known")),
            }
        }
        Ok(asked)
    }

    /// The file systems asked for, or all of `usual`.
    pub(super) fn kinds(&self, usual: &[&str]) -> Vec<String> {
        self.fs.clone().unwrap_or_else(|| usual.iter().map(|&kind| kind.to_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_by_name() {
        let args = ["--fs", "ext4,xfs", "--count", "3", "--seed", "9"].map(str::to_owned);
        let asked = Asked::parse(&args, 1).unwrap();
        assert_eq!((asked.seed, asked.count), (9, Some(3)));
        assert_eq!(asked.kinds(&["btrfs"]), ["ext4", "xfs"]);
        assert_eq!(Asked::default().kinds(&["btrfs"]), ["btrfs"]);
        assert!(Asked::parse(&args[..1], 1).is_err());
        assert!(Asked::parse(&["--seed".to_owned(), "x".to_owned()], 1).is_err());
    }
}
