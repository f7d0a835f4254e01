"""Policies: which calls run, which need an approval, which are denied, and which results an author may read.

rules             the rules and approvers of a conversation    evaluation     the rule that applies to a call
authorization     the step of a requested call                 self_approval  calls that the asker may approve
information_flow  calls that ask because of what the model has read, and results that another author may read
"""
