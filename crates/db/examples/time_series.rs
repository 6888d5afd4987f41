//! Readings of sensors with retention: ordered keys make a window one range, and old readings leave by one call.
//!
//! ```text
//! cargo run -p foreshore --example time_series
//! ```

use foreshore::{Db, Error, Options, TableDef};
use std::time::Duration;

/// Sensor and second to reading. The sensor comes first, so the readings of one sensor lie together, in order of time.
const READINGS: TableDef<(u32, u64), f64> = TableDef::new("readings");
const SENSORS: u32 = 4;
const HOUR: u64 = 3600;

fn main() -> Result<(), Error> {
    let db = Options::in_memory().open("readings")?;
    for second in 0..2 * HOUR {
        if second % 60 == 0 {
            // One transaction a minute, as a collector would write them.
            db.run(|tx| {
                let readings = tx.open(READINGS)?;
                for sensor in 0..SENSORS {
                    for at in second..second + 60 {
                        readings.put((sensor, at), (at % 100) as f64 + f64::from(sensor))?;
                    }
                }
                Ok::<_, Error>(())
            })?;
        }
    }

    println!("sensor 2, mean of ten minutes: {:.2}", mean(&db, 2, HOUR..HOUR + 600)?);
    let latest = db.read().open(READINGS)?.range((2, 0)..=(2, u64::MAX)).next_back().transpose()?;
    println!("sensor 2, latest: {latest:?}");

    let removed = keep_since(&db, HOUR)?;
    println!("retention removed {removed} readings");
    assert_eq!(removed, u64::from(SENSORS) * HOUR);
    assert_eq!(db.read().open(READINGS)?.len()?, u64::from(SENSORS) * HOUR);
    db.close(Duration::from_secs(1))
}

/// Returns the mean reading of a sensor in a span of time, from one snapshot, beside any writer.
fn mean(db: &Db, sensor: u32, span: std::ops::Range<u64>) -> Result<f64, Error> {
    let read = db.read();
    let (mut sum, mut count) = (0.0, 0_u32);
    for row in read.open(READINGS)?.range((sensor, span.start)..(sensor, span.end)) {
        let (_, value) = row?;
        (sum, count) = (sum + value, count + 1);
    }
    Ok(sum / f64::from(count.max(1)))
}

/// Removes the readings before `second`, each sensor in a transaction of its own, so that none becomes large.
fn keep_since(db: &Db, second: u64) -> Result<u64, Error> {
    let mut removed = 0;
    for sensor in 0..SENSORS {
        removed += db.run(|tx| tx.open(READINGS)?.remove_range((sensor, 0)..(sensor, second)))?;
    }
    Ok(removed)
}
