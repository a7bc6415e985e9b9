//! Plain English sentences from a seed: the material prompts and the synthetic tokeniser are made of.

use crate::rng::Rng;

const PEOPLE: &[&str] = &[
    "the baker",
    "my neighbour",
    "an old sailor",
    "the young teacher",
    "her brother",
    "the gardener",
    "a tired nurse",
    "the village doctor",
    "our guide",
    "the night porter",
    "a travelling painter",
    "the clockmaker",
    "his aunt",
    "the new engineer",
    "a quiet librarian",
    "the postman",
    "two students",
    "the shepherd",
    "a retired judge",
    "the ferry pilot",
    "my grandmother",
    "the weaver",
    "a curious child",
    "the station master",
    "an honest merchant",
    "the beekeeper",
    "a street musician",
    "the carpenter",
    "the mayor",
    "a lost tourist",
];
const ACTIONS: &[&str] = &[
    "walked to the market",
    "repaired the broken gate",
    "wrote a long letter",
    "counted the coins twice",
    "waited for the morning train",
    "opened the small window",
    "carried a basket of apples",
    "studied the old map",
    "told a strange story",
    "planted a row of beans",
    "listened to the rain",
    "cleaned the copper kettle",
    "painted the garden fence",
    "read the newspaper aloud",
    "looked for the missing key",
    "closed the shop early",
    "measured the length of the bridge",
    "cooked soup for twelve people",
    "climbed the hill behind the church",
    "asked for a second opinion",
    "learned to play the violin",
    "packed a heavy suitcase",
    "drew a map of the coast",
    "forgot the name of the street",
    "mended a torn sail",
    "sold three wooden chairs",
    "watched the stars",
    "borrowed a ladder",
    "baked bread before sunrise",
    "lit a fire in the stove",
];
const PLACES: &[&str] = &[
    "near the harbour",
    "in the quiet valley",
    "behind the town hall",
    "by the frozen lake",
    "at the edge of the forest",
    "under the railway bridge",
    "in a narrow lane",
    "beside the old mill",
    "on the northern coast",
    "in the middle of the square",
    "above the bakery",
    "across the river",
    "outside the museum",
    "on the second floor",
    "at the end of the platform",
    "along the canal",
];
const TIMES: &[&str] = &[
    "early in the morning",
    "late at night",
    "before the first snow",
    "during the long summer",
    "after the storm",
    "on a windy afternoon",
    "every second Tuesday",
    "at the end of October",
    "in the spring of 1921",
    "shortly before noon",
    "while the bells were ringing",
    "a week later",
    "in the winter of 1987",
    "when the tide was low",
];
const REASONS: &[&str] = &[
    "because the road was closed",
    "although nobody had asked",
    "so that the children could sleep",
    "since the price of coal had doubled",
    "because the clock had stopped",
    "even though it was getting dark",
    "as the doctor had advised",
    "because guests were expected",
    "in order to save a little money",
    "while the others stayed at home",
    "because the roof was leaking",
    "without saying a word",
];
const FACTS: &[&str] = &[
    "Water boils at a lower temperature on a mountain than at the sea.",
    "A year on the planet Mars lasts almost twice as long as a year on Earth.",
    "Bees tell each other where to find flowers by dancing in the hive.",
    "The shortest distance between two points on a flat surface is a straight line.",
    "Iron rusts when it meets both water and air.",
    "Most trees in this region lose their leaves in autumn.",
    "A triangle with three equal sides has three equal angles.",
    "Sound travels faster through water than through air.",
    "Bread rises because yeast turns sugar into gas.",
    "The moon has no light of its own and reflects the light of the sun.",
    "Salt makes ice melt at a lower temperature.",
    "Maps of a round world on flat paper are always a little wrong.",
];
const QUESTIONS: &[&str] = &[
    "What should they do next?",
    "Who could have known the answer?",
    "Why did it take so long?",
    "How would you explain this to a child?",
    "What happened on the following day?",
    "Where had everyone gone?",
];
const LINKS: &[&str] = &[
    "Then",
    "Meanwhile,",
    "After that,",
    "In the end",
    "For a while",
    "Once again",
    "To everyone's surprise,",
];

fn pick<'a>(rng: &mut Rng, list: &[&'a str]) -> &'a str {
    list.get(rng.below(list.len())).copied().unwrap_or_default()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn sentence(rng: &mut Rng) -> String {
    let (who, what) = (pick(rng, PEOPLE), pick(rng, ACTIONS));
    match rng.below(9) {
        0 => format!("{} {what} {}.", capital(who), pick(rng, PLACES)),
        1 => format!("{}, {who} {what}.", capital(pick(rng, TIMES))),
        2 => format!("{} {what} {}.", capital(who), pick(rng, REASONS)),
        3 => format!("{} {who} {what} {}.", pick(rng, LINKS), pick(rng, PLACES)),
        4 => pick(rng, FACTS).to_owned(),
        5 => pick(rng, QUESTIONS).to_owned(),
        6 => format!("\"It was {},\" said {who}, \"and I will never forget it.\"", pick(rng, TIMES)),
        7 => {
            let (a, b) = (rng.below(90) + 10, rng.below(90) + 10);
            format!("{} had {a} letters and received {b} more, which made {} in all.", capital(who), a + b)
        }
        _ => format!("{} {what} {} {}.", capital(who), pick(rng, TIMES), pick(rng, REASONS)),
    }
}

/// A paragraph of `sentences` sentences.
pub(crate) fn paragraph(rng: &mut Rng, sentences: usize) -> String {
    (0..sentences).map(|_| sentence(rng)).collect::<Vec<_>>().join(" ")
}
