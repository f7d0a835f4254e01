"""Policies: which calls run, which need an approval, which are denied, and which results an author may read.

rules             the rules of a conversation     evaluation  the rule that applies to a call
authorization     the step of a requested call    approvers   rights to approve, also of the asker
information_flow  calls that ask because of what the model has read, and results that another author may read
"""
