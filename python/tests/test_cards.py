"""The card that torch.cuda looks like."""
import csv
import pathlib

import pytest

from plimsoll.capture.cards import all_cards, card
from plimsoll.capture.errors import CaptureError


def test_the_table_says_what_the_catalogue_says() -> None:
    catalogue = pathlib.Path(__file__).resolve().parents[2] / 'data' / 'gpus.csv'
    if not catalogue.exists():
        pytest.skip('the catalogue is not here')
    with catalogue.open(newline='') as f:
        for row in csv.DictReader(f):
            if row['vendor'] == 'NVIDIA' and row['compute_capability']:
                mib = row['memory_total_mib_driver'] or round(float(row['memory_gib_usable'] or row['memory_gb_nominal']) * 1024)
                assert card(row['id']).memory == int(mib) << 20


def test_an_unknown_card_is_refused_with_what_is_near() -> None:
    with pytest.raises(CaptureError, match='rtx-4090'):
        card('rtx4090x')
    assert card('RTX 4090') == all_cards()['rtx-4090']
