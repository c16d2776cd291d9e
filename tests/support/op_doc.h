/* op_doc.h -- docs/ops.md, written from what the core knows of its ops.
 *
 * In: ops.def and ops_words.def; the cases of tests/ops/cases.def, in which the core is asked for the dtypes that it takes,
 * the labels of dimensions and the decompositions. Out: the text, freed by free(). A fact that a case cannot tell fails the
 * test at hand. */
#ifndef OP_DOC_H
#define OP_DOC_H

char *op_doc_text(void);

#endif
