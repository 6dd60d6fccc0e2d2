//! A shrinker: drops clients, events and faults while the plan still fails.

use crate::outcome::Invariant;
use crate::world::{Event, Plan, World};

/// How many plans are tried at the most.
const TRIES_MAX: usize = 3_000;

/// The shortest part of a failing plan that still violates the same invariant, as far as taking away finds it.
pub fn shortest<W: World>(world: &W, plan: W::Plan) -> W::Plan {
    let Some(violation) = world.play(&plan, false).violation else {
        return plan;
    };
    let mut shrinker = Shrinker { world, invariant: violation.invariant, plan, tries: 0 };
    loop {
        let before = shrinker.size();
        shrinker.drop_actors();
        shrinker.drop_events();
        shrinker.simplify_events();
        if shrinker.size() == before || shrinker.tries >= TRIES_MAX {
            return shrinker.plan;
        }
    }
}

struct Shrinker<'a, W: World> {
    world: &'a W,
    invariant: Invariant,
    plan: W::Plan,
    tries: usize,
}

impl<W: World> Shrinker<'_, W> {
    fn size(&self) -> (usize, usize) {
        let events = self.plan.events();
        (events.len(), events.iter().map(|event| event.simpler_variants().len()).sum())
    }

    /// Takes over a plan that still fails in the same way.
    fn try_events(&mut self, events: Vec<<W::Plan as Plan>::Event>) -> bool {
        if self.tries >= TRIES_MAX {
            return false;
        }
        self.tries += 1;
        let plan = self.plan.with_events(events);
        let violation = self.world.play(&plan, false).violation;
        let still_fails = violation.is_some_and(|violation| violation.invariant == self.invariant);
        if still_fails {
            self.plan = plan;
        }
        still_fails
    }

    fn drop_actors(&mut self) {
        let mut actors: Vec<usize> = self.plan.events().iter().map(Event::actor).collect();
        actors.sort_unstable();
        actors.dedup();
        for actor in actors {
            let others = self.plan.events().iter().filter(|event| event.actor() != actor);
            let others = others.cloned().collect();
            self.try_events(others);
        }
    }

    fn drop_events(&mut self) {
        let events = self.plan.events().to_vec();
        testkit::shortest(events, |events| self.try_events(events.to_vec()));
    }

    fn simplify_events(&mut self) {
        for index in 0..self.plan.events().len() {
            let mut found = true;
            while found {
                let simpler_variants = self.plan.events()[index].simpler_variants();
                found = simpler_variants.into_iter().any(|event| {
                    let mut events = self.plan.events().to_vec();
                    events[index] = event;
                    self.try_events(events)
                });
            }
        }
    }
}
