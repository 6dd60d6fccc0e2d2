//! What a run found, as Markdown for people and as a chart.

pub(crate) mod chart;

use std::fmt;
use std::path::Path;
use std::{fs, io};

use self::chart::Panel;
use crate::bar::Bar;
use crate::machine::Machine;
use crate::scale::Scale;
use crate::table::Table;

const TABLES_FILE: &str = "results.md";
const CHART_FILE: &str = "results.svg";

/// All that a run found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) command: String,
    pub(crate) scale: Scale,
    pub(crate) minutes: f64,
    pub(crate) sections: Vec<Section>,
}

/// What one section found.
#[derive(Debug, Default)]
pub(crate) struct Section {
    title: &'static str,
    parts: Vec<Part>,
    pub(crate) panels: Vec<Panel>,
    pub(crate) bars: Vec<Bar>,
}

/// Why a section could not be measured.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotRun(pub(crate) String);

#[derive(Debug)]
enum Part {
    Text(String),
    Table(Table),
}

impl Section {
    pub(crate) fn titled(mut self, title: &'static str) -> Self {
        self.title = title;
        self
    }

    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Text(text.into()));
    }

    pub(crate) fn table(&mut self, table: Table) {
        self.parts.push(Part::Table(table));
    }
}

impl Report {
    /// Writes the tables and the chart into a folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(TABLES_FILE), format!("{self}"))?;
        let subtitle = format!("{}, {}", self.machine.date, self.machine.kind());
        let panels = self.sections.iter().flat_map(|section| &section.panels);
        fs::write(folder.join(CHART_FILE), chart::draw(&subtitle, panels))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, command, scale, minutes, sections } = self;
        writeln!(f, "# Measured on {}\n", machine.date)?;
        writeln!(f, "With `{command}`, which wrote this file and took {minutes:.1} minutes, on")?;
        writeln!(f, "{}.\n", machine.kind())?;
        writeln!(
            f,
            "Load average before it began: {}. The contestants and what drives them share the machine.",
            machine.load_average
        )?;
        if *scale == Scale::Quick {
            writeln!(f, "\n**A quick run: it shows that everything works, and no figure.**")?;
        }
        writeln!(
            f,
            "\nEvery figure is the median of rounds in which the contestants took turns, with the least and the most of a round \
             behind it. A ratio is taken round by round.\n"
        )?;
        writeln!(f, "![the figures as a chart]({CHART_FILE})\n")?;
        writeln!(f, "## The bars\n")?;
        write!(f, "{}", Bar::table(sections.iter().flat_map(|section| &section.bars)))?;
        sections.iter().try_for_each(|section| write!(f, "{section}"))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n## {}\n", self.title)?;
        for part in &self.parts {
            match part {
                Part::Text(text) => write!(f, "\n{text}\n")?,
                Part::Table(table) => write!(f, "\n{table}")?,
            }
        }
        Ok(())
    }
}
