//! Report of a run: Markdown tables and a chart.

use std::fmt;
use std::path::Path;
use std::{fs, io};

use crate::chart::{self, Panel};
use crate::machine::Machine;
use crate::scale::Scale;
use crate::table::Table;
use crate::threshold::Threshold;

const TABLES_FILE: &str = "results.md";
const CHART_FILE: &str = "results.svg";

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) scale: Scale,
    pub(crate) minutes: f64,
    pub(crate) sections: Vec<Section>,
}

/// Results of one section.
#[derive(Debug, Default)]
pub(crate) struct Section {
    title: &'static str,
    parts: Vec<String>,
    pub(crate) panels: Vec<Panel>,
    pub(crate) thresholds: Vec<Threshold>,
}

/// Why a section did not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SkipReason(pub(crate) String);

impl Section {
    pub(crate) fn titled(self, title: &'static str) -> Self {
        Self { title, ..self }
    }

    pub(crate) fn text(&mut self, text: impl fmt::Display) {
        self.parts.push(format!("{text}\n"));
    }

    pub(crate) fn table(&mut self, table: &Table) {
        self.parts.push(table.to_string());
    }
}

impl Report {
    /// Writes the tables and the chart into a folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(TABLES_FILE), self.to_string())?;
        let subtitle = format!("{}, {}", self.machine.date, self.machine.kind());
        let panels = self.sections.iter().flat_map(|section| &section.panels);
        fs::write(folder.join(CHART_FILE), chart::draw(&subtitle, panels))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, scale, minutes, sections } = self;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        writeln!(
            f,
            "# Results of {date}\n\n\
             Written by `cargo run --release -p bench -- {arguments}` in {minutes:.1} minutes on\n\
             {kind}.\n\n\
             Load average before the run: {load_average}. Servers and load generator share the machine.",
            date = machine.date,
            arguments = arguments.join(" "),
            kind = machine.kind(),
            load_average = machine.load_average,
        )?;
        if *scale == Scale::Quick {
            writeln!(
                f,
                "\n**A quick run: it shows that everything works; its numbers mean nothing.**"
            )?;
        }
        writeln!(
            f,
            "\nEach value is the median of several rounds, with minimum and maximum in parentheses. The contestants alternate within a round, \
             and a ratio is taken round by round.\n\n\
             ![chart of the results]({CHART_FILE})\n\n\
             ## Thresholds\n"
        )?;
        let thresholds = sections.iter().flat_map(|section| &section.thresholds);
        write!(f, "{}", Threshold::table(thresholds))?;
        for Section { title, parts, .. } in sections {
            write!(f, "\n## {title}\n")?;
            parts.iter().try_for_each(|part| write!(f, "\n{part}"))?;
        }
        Ok(())
    }
}
