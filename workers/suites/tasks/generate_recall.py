"""Writes gk_recall.jsonl: short passages, each with a question whose four options all occur in it.

Options alone say nothing: the answer can only come from the context, that is, from the KV cache.
Run as a script, this rewrites the file beside it; the same code gives the same bytes.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ITEMS_FILE = Path(__file__).with_name("gk_recall.jsonl")
SEED = "gk_recall/2"
ITEMS_PER_GROUP = 12
OPTION_COUNT = 4

NAMES = (
    "Anna Ben Carl Diana Edward Frank Grace Henry Jack Kate Leo Maria Nina Oscar Paul Rosa Simon Tom Victor"
).split()
ROOMS = "kitchen garage attic bathroom bedroom hall garden office library barn".split()
JOBS = "baker doctor farmer teacher lawyer painter pilot sailor singer writer judge nurse".split()
COLOURS = "red blue green yellow black white brown orange purple pink grey gold".split()
VEHICLES = "bicycle car boat van truck scooter sledge tractor wagon tent kayak trailer".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
CITIES = "London Paris Berlin Madrid Rome Vienna Dublin Oslo Boston Chicago Toronto Sydney".split()
CONTAINERS = "box bag basket jar drawer trunk bucket crate chest pot".split()
CONTENTS = "coins letters buttons candles nails shells seeds stamps ribbons marbles".split()
NUMBERS = [str(number) for number in range(112, 990, 37)]
OBJECTS = (
    "kettle|silver spoon|wool blanket|old clock|green vase|leather bag|violin|garden lamp|"
    "wooden box|straw hat|glass bowl|paper kite|brass bell|small mirror|iron key|blue cup"
).split("|")
EVENTS = (
    "piano lesson|football match|dance class|book club|town meeting|flower market|chess game|"
    "art show|school play|swimming race"
).split("|")
OPENINGS = (
    "These are the notes from this week.",
    "Here is what we know so far.",
    "Please read the following lines with care.",
    "This is a short report from the village.",
)
ASIDES = (
    "It was a quiet day.",
    "The weather stayed calm and mild.",
    "Nobody was in a hurry.",
    "A light wind came from the west.",
    "The bells rang at noon.",
)

T = TypeVar("T")


class Dice:
    """Draws made from `random()` alone: Python promises its sequence across versions, no other."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)

    def choose(self, options: Sequence[T]) -> T:
        return options[int(self._rng.random() * len(options))]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        return sorted(options, key=lambda _: self._rng.random())


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Statements in reading order and a question about them; the wrong options occur in them too."""

    statements: list[str]
    question: str
    answer_stem: str
    answer: str
    wrong: list[str]


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A relation key -> value: the ways a passage states it, and how a question asks for the value."""

    statements: tuple[str, ...]
    question: str
    answer_stem: str
    keys: Sequence[str]
    values: Sequence[str]

    def passage(self, dice: Dice, asked: int) -> Passage:
        """States `size` pairs among unrelated statements, some items the asked pair twice."""
        size = dice.choose((4, 4, 5))
        keys, values = dice.shuffled(self.keys)[:size], dice.shuffled(self.values)[:size]
        pairs = list(zip(keys, values, strict=True))
        first, *others = [(dice.shuffled(self.statements), key, value) for key, value in pairs]
        told = [wordings[0].format(key=key, value=value) for wordings, key, value in (first, *others)]
        if is_restated(asked):
            told.append(first[0][1].format(key=keys[0], value=values[0]))
        return Passage(
            statements=dice.shuffled(told + unrelated(dice, self)),
            question=self.question.format(key=keys[0]),
            answer_stem=self.answer_stem.format(key=keys[0]),
            answer=values[0],
            wrong=dice.shuffled(values[1:])[: OPTION_COUNT - 1],
        )


def is_restated(asked: int) -> bool:
    """Three items out of four tell the answer twice, in other words: the easier ones."""
    return asked % 4 != 0


def unrelated(dice: Dice, asked: Relation) -> list[str]:
    """Up to six statements that share neither keys nor values with the asked relation."""
    words = (asked.keys, asked.values)
    told: list[str] = []
    for relation in RELATIONS.values():
        keys, values = dice.shuffled(relation.keys), dice.shuffled(relation.values)
        if relation.keys not in words and relation.values not in words:
            told += [
                dice.choose(relation.statements).format(key=key, value=value)
                for key, value in zip(keys[:2], values[:2], strict=True)
            ]
    return dice.shuffled(told)[: dice.choose((4, 5, 6))]


RELATIONS = {
    "location": Relation(
        statements=(
            "The {key} is in the {value}.",
            "Somebody left the {key} in the {value}.",
            "The {key} was put in the {value}.",
        ),
        question="Where is the {key}?",
        answer_stem="The {key} is in the",
        keys=OBJECTS,
        values=ROOMS,
    ),
    "owner": Relation(
        statements=(
            "The {key} belongs to {value}.",
            "The owner of the {key} is {value}.",
            "The {key} was bought by {value}.",
        ),
        question="Who owns the {key}?",
        answer_stem="The {key} belongs to",
        keys=OBJECTS,
        values=NAMES,
    ),
    "job": Relation(
        statements=(
            "{key} is a {value}.",
            "{key} works as a {value}.",
            "For many years {key} has been a {value}.",
        ),
        question="What is the job of {key}?",
        answer_stem="{key} is a",
        keys=NAMES,
        values=JOBS,
    ),
    "worker": Relation(
        statements=(
            "The {key} is {value}.",
            "The name of the {key} is {value}.",
            "The new {key} is called {value}.",
        ),
        question="Who is the {key}?",
        answer_stem="The {key} is",
        keys=JOBS,
        values=NAMES,
    ),
    "number": Relation(
        statements=(
            "{key} has locker number {value}.",
            "{key} got the key to locker {value}.",
            "The locker of {key} is number {value}.",
        ),
        question="Which locker number does {key} have?",
        answer_stem="{key} has locker number",
        keys=NAMES,
        values=NUMBERS,
    ),
    "colour": Relation(
        statements=(
            "The {key} is {value}.",
            "Somebody painted the {key} {value}.",
            "The colour of the {key} is {value}.",
        ),
        question="What colour is the {key}?",
        answer_stem="The {key} is",
        keys=VEHICLES,
        values=COLOURS,
    ),
    "weekday": Relation(
        statements=(
            "The {key} is on {value}.",
            "The {key} takes place on {value}.",
            "The {key} was moved to {value}.",
        ),
        question="On which day is the {key}?",
        answer_stem="The {key} is on",
        keys=EVENTS,
        values=DAYS,
    ),
    "home": Relation(
        statements=(
            "{key} lives in {value}.",
            "The home of {key} is in {value}.",
            "{key} has a small house in {value}.",
        ),
        question="Where does {key} live?",
        answer_stem="{key} lives in",
        keys=NAMES,
        values=CITIES,
    ),
}


def moved(dice: Dice, asked: int) -> Passage:
    """Three objects get a place, two of them a new one; the asked object's old place is an option."""
    things, rooms = dice.shuffled(OBJECTS)[:3], dice.shuffled(ROOMS)[:5]
    movers, target = dice.shuffled(NAMES)[:3], asked % 2
    seen = f"{movers[2]} saw the {things[target]} in the {rooms[3 + target]}."
    return Passage(
        statements=[
            *(f"The {things[i]} was in the {rooms[i]}." for i in range(3)),
            *unrelated(dice, RELATIONS["location"]),
            *(f"Later {movers[i]} moved the {things[i]} to the {rooms[3 + i]}." for i in range(2)),
            *([seen] if is_restated(asked) else []),
        ],
        question=f"Where did {movers[target]} move the {things[target]}?",
        answer_stem=f"{movers[target]} moved the {things[target]} to the",
        answer=rooms[3 + target],
        wrong=[rooms[target], rooms[2], rooms[4 - target]],
    )


def two_hop(dice: Dice, asked: int) -> Passage:
    """Who has which container, and what it holds; asked is what somebody has in the container."""
    names, boxes = dice.shuffled(NAMES)[:OPTION_COUNT], dice.shuffled(CONTAINERS)[:OPTION_COUNT]
    contents, target = dice.shuffled(CONTENTS)[:OPTION_COUNT], asked % OPTION_COUNT
    seen = f"A child looked into the {boxes[target]} and saw {contents[target]}."
    return Passage(
        statements=[
            *(
                f"{name} has a {box}. The {box} is full of {content}."
                for name, box, content in zip(names, boxes, contents, strict=True)
            ),
            *([seen] if is_restated(asked) else []),
            *unrelated(dice, RELATIONS["owner"]),
        ],
        question=f"What is in the {boxes[target]} of {names[target]}?",
        answer_stem=f"{names[target]} has a {boxes[target]} full of",
        answer=contents[target],
        wrong=[content for content in contents if content != contents[target]],
    )


def context(dice: Dice, passage: Passage) -> str:
    opening = dice.choose(OPENINGS)
    asides = dice.shuffled(ASIDES)[: dice.choose((1, 2, 3))]
    text = " ".join([opening, *passage.statements, *asides])
    return f"{text}\n\nQuestion: {passage.question}\nAnswer: {passage.answer_stem}"


def items() -> list[dict[str, object]]:
    dice = Dice(SEED)
    makers = {group: relation.passage for group, relation in RELATIONS.items()}
    makers |= {"moved": moved, "two_hop": two_hop}
    found: list[dict[str, object]] = []
    for group, make in makers.items():
        places = dice.shuffled([i % OPTION_COUNT for i in range(ITEMS_PER_GROUP)])
        for asked, place in enumerate(places):
            passage = make(dice, asked)
            found.append(
                {
                    "id": f"recall-{group}-{asked + 1:02d}",
                    "group": group,
                    "context": context(dice, passage),
                    "choices": [*passage.wrong[:place], passage.answer, *passage.wrong[place:]],
                    "answer": place,
                }
            )
    return found


def render() -> str:
    """The whole file, one item a line."""
    return "".join(json.dumps(item) + "\n" for item in items())


if __name__ == "__main__":
    ITEMS_FILE.write_text(render(), encoding="utf-8", newline="\n")
