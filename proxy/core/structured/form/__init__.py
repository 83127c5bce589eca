"""The reader of a request's section ``stratiform``.

The input is JSON. The output is typed and checked values, or ``InvalidRequest`` with the field that is wrong. This
package never looks up content that a request names by its digest.
"""
