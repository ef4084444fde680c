"""Arguments that a release reads only behind conditions on other arguments: the table beside the rule that rests on it.

python -m sglfleet.extract.reads FOLDER-OF-UNPACKED-RELEASES > validators/rules/reads.json
"""
