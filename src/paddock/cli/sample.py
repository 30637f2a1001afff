"""The sample data of the demo: airports, airlines and a year of flights between them, and the database of a shop. The
same on every machine."""

import math
import random
from pathlib import Path

SEED = 20261116
AIRPORTS = 2_000
AIRLINES = 40
FLIGHTS = 300_000
CUSTOMERS = 2_000
ORDERS = 60_000
SYLLABLES = ("ka", "lo", "mi", "ra", "ne", "to", "sa", "vi", "du", "pe", "ji", "or", "el", "un", "ba", "zy")

MAPPING = """\
name: flights
description: Airports, the airlines that serve them, and the routes between them.
nodes:
  - label: Airport
    primary_key: {name: code, type: STRING}
    properties:
      - {name: city, type: STRING}
      - {name: latitude, type: DOUBLE}
      - {name: longitude, type: DOUBLE}
    sql: |-
      SELECT code, city, latitude, longitude
      FROM 'airports.csv'
  - label: Airline
    primary_key: {name: id, type: INT64}
    properties:
      - {name: name, type: STRING}
    sql: |-
      SELECT id, name
      FROM 'airlines.csv'
edges:
  - type: ROUTE
    from_node: Airport
    to_node: Airport
    from_key: origin
    to_key: destination
    properties:
      - {name: flights, type: INT64}
      - {name: delay_minutes, type: DOUBLE}
    sql: |-
      SELECT origin, destination, count(*) AS flights, avg(delay) AS delay_minutes
      FROM 'flights.csv'
      GROUP BY origin, destination
  - type: SERVES
    from_node: Airline
    to_node: Airport
    from_key: airline
    to_key: origin
    properties: []
    sql: |-
      SELECT DISTINCT airline, origin
      FROM 'flights.csv'
"""

QUERY = """\
SELECT origin, destination, airline, departed::TIMESTAMP AS departed, delay, price::DECIMAL(8,2) AS price
FROM 'flights.csv'
WHERE delay > 60"""

# Two questions to the graph of that mapping.
ON_TIME = """\
MATCH p = (:Airport {code: 'XHY'})-[:ROUTE* SHORTEST 1..10 (r, n | WHERE r.delay_minutes < 0)]->(b:Airport)
RETURN length(p) AS flights, count(*) AS airports ORDER BY flights"""
IMPORTANT = "MATCH (a:Airport) RETURN a.code, a.city, round(100 * a.rank, 2) AS percent ORDER BY a.rank DESC LIMIT 5"


def write_sample(folder: Path) -> int:
    """Writes the files and returns how many rows they have together."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(SEED)
    codes = _codes(chance)
    _write_airports(folder / "airports.csv", chance, codes)
    _write_airlines(folder / "airlines.csv", chance)
    _write_flights(folder / "flights.csv", chance, codes)
    return AIRPORTS + AIRLINES + FLIGHTS


def _codes(chance: random.Random) -> list[str]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return chance.sample([a + b + c for a in letters for b in letters for c in letters], AIRPORTS)


def _name(chance: random.Random) -> str:
    return "".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))).capitalize()


def _write_airports(path: Path, chance: random.Random, codes: list[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("code,city,latitude,longitude\n")
        for code in codes:
            file.write(f"{code},{_name(chance)},{chance.uniform(-60, 75):.4f},{chance.uniform(-180, 180):.4f}\n")


def _write_airlines(path: Path, chance: random.Random) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("id,name\n")
        file.writelines(f"{number},{_name(chance)} Air\n" for number in range(1, AIRLINES + 1))


def _write_flights(path: Path, chance: random.Random, codes: list[str]) -> None:
    """Few airports have most of the flights, as in life."""
    with path.open("w", encoding="utf-8") as file:
        file.write("origin,destination,airline,departed,delay,price\n")
        for number in range(FLIGHTS):
            origin = codes[int(AIRPORTS * chance.random() ** 3)]
            destination = codes[int(AIRPORTS * chance.random() ** 3)]
            day, minute = divmod(number * 525_600 // FLIGHTS, 1_440)
            departed = f"2025-{1 + day * 12 // 365:02}-{1 + day % 28:02} {minute // 60:02}:{minute % 60:02}:00"
            delay = int(chance.expovariate(1 / 25)) - 5
            price = 40 + 400 * math.sqrt(chance.random())
            file.write(f"{origin},{destination},{1 + number % AIRLINES},{departed},{delay},{price:.2f}\n")


SHOP = """\
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT NOT NULL, since TEXT);
CREATE TABLE product(sku TEXT PRIMARY KEY, name TEXT, price REAL, picture BLOB) WITHOUT ROWID;
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customer, sku TEXT REFERENCES product, pieces INT);
CREATE INDEX orders_of_customer ON orders(customer);
CREATE VIEW turnover AS SELECT sku, sum(pieces * price) AS total FROM orders JOIN product USING (sku) GROUP BY sku;
"""


def write_shop(path: Path) -> int:
    """A database in WAL mode, as one that is in use has to be; returns how many rows it has."""
    import apsw

    chance = random.Random(SEED)
    shop = apsw.Connection(str(path))
    try:
        shop.execute("PRAGMA journal_mode = WAL").fetchall()
        with shop:
            shop.execute(SHOP)
            customers = ((n, _name(chance), f"2026-{n % 12 + 1:02}-01") for n in range(CUSTOMERS))
            shop.executemany("INSERT INTO customer VALUES(?, ?, ?)", customers)
            skus = [f"{_name(chance).upper()}-{n}" for n in range(100)]
            products = ((sku, _name(chance), chance.randrange(100, 9999) / 100, chance.randbytes(500)) for sku in skus)
            shop.executemany("INSERT INTO product VALUES(?, ?, ?, ?)", products)
            orders = ((chance.randrange(CUSTOMERS), chance.choice(skus), chance.randint(1, 9)) for _ in range(ORDERS))
            shop.executemany("INSERT INTO orders(customer, sku, pieces) VALUES(?, ?, ?)", orders)
    finally:
        shop.close()
    return CUSTOMERS + len(skus) + ORDERS
