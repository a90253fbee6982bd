#!/usr/bin/env python3
"""validate.py SCHEMAS ANSWERS: holds each VERB.N.json of the second folder against VERB.json of the first."""
import json, pathlib, sys
from jsonschema import Draft202012Validator

schemas, answers = map(pathlib.Path, sys.argv[1:])
wrong = 0
for file in sorted(answers.glob('*.json')):
    schema = json.loads((schemas / (file.name.split('.')[0] + '.json')).read_text())
    Draft202012Validator.check_schema(schema)
    for error in Draft202012Validator(schema).iter_errors(json.loads(file.read_text())):
        print(f"{file.name}: /{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")
        wrong += 1
sys.exit(wrong > 0)
